#include "oracle/gdn/kernels/kernels.h"

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::oracle {

namespace {

constexpr std::string_view k_prefix = "builtin:";

using Runner = GdnOutputs (*)(const GdnProblem&, const GdnContract&, int);

using Adjoint = GdnGradients (*)(const GdnProblem&, const GdnContract&, const GdnCotangents&, int);

struct Builtin {
    std::string_view name;
    Runner run;
    Adjoint backward = nullptr;
};

constexpr Builtin k_builtins[] = {
    {"chunk",
     [](const GdnProblem& p, const GdnContract& c, int threads) {
         return run_chunk32(p, c, {c.chunk, GateSum::fp64_with_resets, c.matmul, storage_of(p)}, threads);
     },
     [](const GdnProblem& p, const GdnContract& c, const GdnCotangents& d, int threads) {
         return run_backward32(p, c, d, threads);
     }},
    {"fused", [](const GdnProblem& p, const GdnContract& c,
                 int threads) { return run_fused32(p, c, threads, best_isa(), storage_of(p)); }},
    {"recurrent32",
     [](const GdnProblem& p, const GdnContract& c, int threads) { return run_recurrent32(p, c, threads); }},
    {"recurrent64",
     [](const GdnProblem& p, const GdnContract& c, int threads) { return run_recurrent64(p, c, threads); },
     [](const GdnProblem& p, const GdnContract& c, const GdnCotangents& d, int threads) {
         return run_adjoint64(p, c, d, threads);
     }},
};

class BuiltinKernel : public Kernel {
public:
    explicit BuiltinKernel(const Builtin& row) : m_row(row) {}

    std::string_view timed() const override { return "in_process"; }
    Result<std::uint32_t> entries() override {
        return (1U << entry_of(KernelPass::forward)) |
               (m_row.backward != nullptr ? 1U << entry_of(KernelPass::backward) : 0U);
    }

    Faulted place(const Asked& asked) override {
        auto& inputs = static_cast<GdnInputs&>(asked.inputs);
        GDNCTL_TRY_ASSIGN(const bool has, this->has(asked.pass));
        if (!has) {
            return KernelFault{
                KernelFaultKind::unsupported, fmt::format("the kernel has no {}", name_of(inputs.pass())), {}};
        }
        GDNCTL_TRY(inputs.read());
        if (inputs.pass() == KernelPass::backward && !inputs.cotangents()) {
            return KernelFault{KernelFaultKind::unsupported, "there are no cotangents to start from", {}};
        }
        m_inputs = &inputs;
        m_threads = asked.threads;
        return std::nullopt;
    }

    Faulted call() override {
        const GdnProblem& p = m_inputs->problem();
        const GdnContract& c = m_inputs->contract().value;
        m_outputs =
            m_inputs->pass() == KernelPass::backward
                ? gradients_file(p, c, m_row.backward(p, c, *m_inputs->cotangents(), m_threads), DType::f32, DType::f32)
                : outputs_file(p, c, m_row.run(p, c, m_threads), out_dtype_of(c, p), DType::f32);
        return std::nullopt;
    }

    Faulted collect(TensorFile& outputs) override {
        outputs = std::move(m_outputs);
        return std::nullopt;
    }

private:
    const Builtin& m_row;
    const GdnInputs* m_inputs = nullptr;
    int m_threads = 1;
    TensorFile m_outputs;
};

constexpr KernelPass k_passes[] = {KernelPass::forward, KernelPass::backward, KernelPass::decode,
                                   KernelPass::decode_in_place};

}  // namespace

Status GdnInputs::read() {
    GDNCTL_TRY_ASSIGN(m_problem, read_problem(m_file, m_contract));
    if (m_pass != KernelPass::backward) return {};
    GDNCTL_TRY_ASSIGN(m_cotangents, read_cotangents(m_file, m_problem, m_contract.value));
    return {};
}

Result<Call> GdnInputs::call(std::size_t /*pass*/, std::uint32_t dtypes, int threads) {
    const bool narrow = (dtypes & k_bf16_taken) != 0;
    GdnCotangents cotangents = m_cotangents.value_or(GdnCotangents{});
    cotangents.d_out.resize(m_problem.v.size());
    return arrays_of(make_call(m_problem, m_contract.value, narrow, m_pass, cotangents), threads);
}

TensorFile GdnInputs::in_files(const TensorFile& written) const {
    if (m_pass == KernelPass::backward) return call_gradients(m_problem, m_contract.value, written);
    return call_outputs(m_problem, m_contract.value, *written.find("out"), *written.find("final_state"));
}

TensorFile GdnInputs::file() const {
    TensorFile file = m_file;
    for (const auto& [field, value] : m_contract.as_metadata()) file.metadata[field] = value;
    return file;
}

Result<KernelRun> run_pass(Kernel& kernel, KernelPass pass, const TensorFile& inputs, const ResolvedContract& contract,
                           int threads) {
    GdnInputs given(pass, inputs, contract);
    return run_once(kernel, {given, entry_of(pass), threads});
}

Result<std::vector<KernelPass>> passes_of(Kernel& kernel) {
    if (kernel.is_program()) return std::vector{KernelPass::forward};
    GDNCTL_TRY_ASSIGN(const std::uint32_t entries, kernel.entries());
    if (entries == 0) return std::vector{KernelPass::forward, KernelPass::decode};  // cannot be asked
    std::vector<KernelPass> passes;
    for (const KernelPass pass : k_passes) {
        if ((entries & (1U << entry_of(pass))) != 0) passes.push_back(pass);
    }
    return passes;
}

std::vector<std::string> builtin_kernel_names() {
    std::vector<std::string> names;
    for (const Builtin& b : k_builtins) names.emplace_back(b.name);
    return names;
}

Result<std::unique_ptr<Kernel>> find_builtin_kernel(std::string_view spelling) {
    const auto names = builtin_kernel_names();
    if (!spelling.starts_with(k_prefix)) {
        return fail(ErrorKind::usage, fmt::format("kernel '{}' is not of the form builtin:NAME", spelling),
                    fmt::format("known: builtin:{}", text::join(names, ", builtin:")));
    }
    const std::string_view name = spelling.substr(k_prefix.size());
    for (const Builtin& b : k_builtins) {
        if (b.name == name) return std::make_unique<BuiltinKernel>(b);
    }
    const auto near = text::nearest(name, names);
    return fail(ErrorKind::usage, fmt::format("unknown kernel '{}'", spelling),
                near ? fmt::format("did you mean 'builtin:{}'?", *near)
                     : fmt::format("known: builtin:{}", text::join(names, ", builtin:")));
}

}  // namespace gdnctl::oracle
