#include "harness/child/kernel.h"

#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "gdn/gdn_kernel.h"
#include "harness/child/program.h"
#include "oracle/gdn/under_test/call.h"

namespace gdnctl::harness {

namespace {

using oracle::KernelRun;
using oracle::KernelUnderTest;

class LibraryKernel : public KernelUnderTest {
public:
    LibraryKernel(std::string spelling, Library library, const Limits& limits, const Context& context)
        : m_spelling(std::move(spelling)),
          m_library(std::move(library)),
          m_process(context, m_library.path(), limits) {}

    std::string name() const override { return m_spelling; }
    bool worth_repeating() const override { return true; }
    std::string network() const override {
        return m_opened ? std::string(gdnctl::name_of(m_process.barrier())) : std::string();
    }

    Result<KernelRun> run(const oracle::TensorFile& inputs, const oracle::ResolvedContract& contract,
                          int threads) override {
        return run_pass(oracle::KernelPass::forward, inputs, contract, threads);
    }

    Result<std::vector<oracle::KernelPass>> passes() override {
        using oracle::KernelPass;
        const std::vector<KernelPass> cannot_be_asked = {KernelPass::forward, KernelPass::decode};
        if (m_library.build_fault()) return cannot_be_asked;
        GDNCTL_TRY_ASSIGN(const auto fault, m_process.open());
        if (fault || m_process.entries() == 0) return cannot_be_asked;
        m_opened = true;
        std::vector<KernelPass> passes;
        for (const auto& [entry, pass] : {std::pair{GDN_FORWARD, KernelPass::forward},
                                          {GDN_BACKWARD, KernelPass::backward},
                                          {GDN_DECODE, KernelPass::decode},
                                          {GDN_DECODE, KernelPass::decode_in_place}}) {
            if ((m_process.entries() & (1U << static_cast<unsigned>(entry))) != 0) passes.push_back(pass);
        }
        return passes;
    }

    Result<KernelRun> run_pass(oracle::KernelPass pass, const oracle::TensorFile& inputs,
                               const oracle::ResolvedContract& contract, int threads) override {
        oracle::ResolvedContract own = contract;
        GDNCTL_TRY_ASSIGN(const oracle::GdnProblem problem, read_problem(inputs, own));
        oracle::GdnCotangents cotangents;
        if (pass == oracle::KernelPass::backward) {
            GDNCTL_TRY_ASSIGN(auto given, oracle::read_cotangents(inputs, problem, own.value));
            if (given) cotangents = std::move(*given);
            cotangents.d_out.resize(problem.v.size());
        }
        KernelRun result;
        result.fault = m_library.build_fault();
        if (result.fault) return result;
        GDNCTL_TRY_ASSIGN(result.fault, m_process.open());
        if (result.fault) return result;
        m_opened = true;
        const auto call = make_call(problem, own.value, (m_process.dtypes() & (1U << GDN_BF16)) != 0, pass, cotangents);
        GDNCTL_TRY_ASSIGN(result.fault, m_process.prepare(call, threads));
        if (result.fault) return result;
        GDNCTL_TRY_ASSIGN(result.fault, m_process.call());
        if (result.fault) return result;
        oracle::TensorFile written;
        GDNCTL_TRY_ASSIGN(result.fault, m_process.collect(call, written));
        if (result.fault) return result;
        result.outputs = pass == oracle::KernelPass::backward
                             ? call_gradients(problem, own.value, written)
                             : call_outputs(problem, own.value, *written.find("out"), *written.find("final_state"));
        return result;
    }

private:
    std::string m_spelling;
    Library m_library;
    KernelProcess m_process;
    bool m_opened = false;
};

}  // namespace

std::uint64_t secret_seed() {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

bool is_library(std::string_view spelling) { return spelling.starts_with("lib:") || spelling.starts_with("src:"); }

Result<std::unique_ptr<KernelUnderTest>> open_kernel(const std::string& spelling, const Limits& limits,
                                                     const Context& context) {
    if (spelling.starts_with("builtin:")) return oracle::find_builtin_kernel(spelling);
    if (spelling.starts_with("cmd:")) return open_program(spelling, limits, context);
    if (is_library(spelling)) {
        GDNCTL_TRY_ASSIGN(Library library, Library::open(spelling, context));
        return std::make_unique<LibraryKernel>(spelling, std::move(library), limits, context);
    }
    return fail(ErrorKind::usage, fmt::format("unknown kind of kernel '{}'", spelling),
                "name it lib:PATH, src:FILE.c, cmd:COMMAND or builtin:NAME");
}

ExitCode exit_code_of(oracle::KernelFaultKind kind) {
    switch (kind) {
        case oracle::KernelFaultKind::timed_out: return ExitCode::timeout;
        case oracle::KernelFaultKind::wrong_shape:
        case oracle::KernelFaultKind::no_entry_point:
        case oracle::KernelFaultKind::build_failed: return ExitCode::bad_input;
        default: return ExitCode::check_failed;
    }
}

Json fault_json(const std::optional<oracle::KernelFault>& fault) {
    if (!fault) return nullptr;
    return {{"kind", oracle::name_of(fault->kind)}, {"text", fault->text}, {"output", fault->output}};
}

std::string quoted_output(const oracle::KernelFault& fault) {
    std::string quoted;
    if (fault.output.empty()) return quoted;
    for (const auto line : text::split(fault.output, '\n')) quoted += fmt::format("       | {}\n", line);
    return quoted;
}

}  // namespace gdnctl::harness
