#include "commands/oracle_bench_kernel.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>

#include "commands/oracle_kernel_program.h"
#include "gdnctl/oracle/gdn_contract.h"

namespace gdnctl::commands::oracle_bench {

namespace {

using oracle::KernelFault;
using oracle::KernelFaultKind;
using oracle::KernelPass;

// Nobody can know the signs of a run before it.
std::uint64_t secret_seed() {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

bool same_bytes(const oracle::TensorFile& a, const oracle::TensorFile& b) {
    return std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                      [](const oracle::NamedTensor& x, const oracle::NamedTensor& y) {
                          return x.name == y.name && x.tensor.bytes == y.tensor.bytes;
                      });
}

KernelPass asked_for(oracle::Pass pass) {
    switch (pass) {
        case oracle::Pass::backward: return KernelPass::backward;
        case oracle::Pass::decode: return KernelPass::decode_in_place;
        case oracle::Pass::forward: break;
    }
    return KernelPass::forward;
}

}  // namespace

Result<std::unique_ptr<ForeignKernel>> ForeignKernel::open(const std::string& spelling,
                                                           const oracle_kernel::Limits& limits,
                                                           const Context& context) {
    if (oracle_kernel::is_library(spelling)) {
        GDNCTL_TRY_ASSIGN(auto library, oracle_kernel::Library::open(spelling, context));
        return timed_library(spelling, std::move(library), limits, context);
    }
    if (spelling.starts_with("cmd:")) {
        GDNCTL_TRY(oracle_kernel::check_program(spelling));
        return timed_program(spelling, limits, context);
    }
    return fail(ErrorKind::usage, fmt::format("kernel '{}' is of no known kind", spelling),
                "name it lib:PATH, src:FILE.c, cmd:COMMAND or builtin:NAME");
}

ForeignPass::ForeignPass(oracle::Pass pass, const Task& task)
    : m_pass(pass), m_task(task), m_inputs(pass == oracle::Pass::backward ? task.with_cotangents() : task.inputs) {}

Subject ForeignPass::subject(std::string name, double flop) {
    m_seed = secret_seed();
    Subject subject{std::move(name), flop, [this] { run(); }, {}, {}};
    subject.before = [this] { return before(); };
    subject.after = [this] { return after(); };
    return subject;
}

Status ForeignPass::before() {
    if (m_fault) return {};
    m_disguise = oracle::Disguise(m_task.reference.problem.dims, m_task.reference.contract.value.head_map, ++m_seed);
    GDNCTL_TRY_ASSIGN(m_fault, place(m_disguise));
    return {};
}

// Only the call is timed: what it led to is looked at in after().
void ForeignPass::run() {
    if (m_fault) return;
    auto fault = call();
    if (!fault) {
        m_error = std::move(fault).error();
        return;
    }
    m_fault = std::move(*fault);
}

Status ForeignPass::after() {
    if (m_error) return tl::unexpected(*m_error);
    if (m_fault) return {};
    oracle::TensorFile outputs;
    GDNCTL_TRY_ASSIGN(m_fault, collect(outputs));
    if (m_fault) return {};
    apply(m_disguise, outputs, m_task.reference.contract.value.state_layout);
    if (m_first && same_bytes(*m_first, outputs)) return {};
    const auto verdict = oracle::judge_run({in_files(outputs), std::nullopt}, m_inputs, m_task.reference,
                                           m_task.threads, asked_for(m_pass));
    if (!m_first) {
        m_first = std::move(outputs);
        m_fault = verdict.fault;
        m_report = verdict.report;
    } else if (verdict.fault || verdict.report.verdict != m_report.verdict) {
        const std::string& why = verdict.fault ? verdict.fault->text : verdict.report.reason;
        m_fault = KernelFault{KernelFaultKind::unsteady, fmt::format("another result in a later run: {}", why), {}};
    }
    return {};
}

}  // namespace gdnctl::commands::oracle_bench
