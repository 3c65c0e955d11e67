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

class BuiltinKernel : public KernelUnderTest {
public:
    explicit BuiltinKernel(const Builtin& row) : m_row(row) {}

    std::string name() const override { return std::string(k_prefix) + std::string(m_row.name); }
    bool worth_repeating() const override { return false; }

    Result<KernelRun> run(const TensorFile& inputs, const ResolvedContract& contract, int threads) override {
        ResolvedContract own = contract;
        GDNCTL_TRY_ASSIGN(const GdnProblem problem, read_problem(inputs, own));
        KernelRun result;
        result.outputs = outputs_file(problem, own.value, m_row.run(problem, own.value, threads),
                                      out_dtype_of(own.value, problem), DType::f32);
        return result;
    }

    Result<std::vector<KernelPass>> passes() override {
        std::vector<KernelPass> passes = {KernelPass::forward};
        if (m_row.backward != nullptr) passes.push_back(KernelPass::backward);
        return passes;
    }

    Result<KernelRun> run_pass(KernelPass pass, const TensorFile& inputs, const ResolvedContract& contract,
                               int threads) override {
        if (pass != KernelPass::backward || m_row.backward == nullptr) {
            return KernelUnderTest::run_pass(pass, inputs, contract, threads);
        }
        ResolvedContract own = contract;
        GDNCTL_TRY_ASSIGN(const GdnProblem problem, read_problem(inputs, own));
        GDNCTL_TRY_ASSIGN(const auto cotangents, read_cotangents(inputs, problem, own.value));
        KernelRun result;
        if (!cotangents) {
            result.fault = KernelFault{KernelFaultKind::unsupported, "there are no cotangents to start from", {}};
            return result;
        }
        result.outputs = gradients_file(problem, own.value, m_row.backward(problem, own.value, *cotangents, threads),
                                        DType::f32, DType::f32);
        return result;
    }

private:
    const Builtin& m_row;
};

}  // namespace

Result<KernelRun> KernelUnderTest::run_pass(KernelPass pass, const TensorFile& inputs, const ResolvedContract& contract,
                                            int threads) {
    if (pass == KernelPass::forward) return run(inputs, contract, threads);
    KernelRun result;
    result.fault = KernelFault{KernelFaultKind::unsupported, fmt::format("the kernel has no {}", name_of(pass)), {}};
    return result;
}

std::vector<std::string> builtin_kernel_names() {
    std::vector<std::string> names;
    for (const Builtin& b : k_builtins) names.emplace_back(b.name);
    return names;
}

Result<std::unique_ptr<KernelUnderTest>> find_builtin_kernel(std::string_view spelling) {
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
