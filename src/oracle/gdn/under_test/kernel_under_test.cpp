#include "oracle/gdn/under_test/kernel_under_test.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/compare/declare.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/gdn/under_test/call.h"

namespace gdnctl::oracle {

Result<TensorFile> canonical_inputs(TensorFile file, const ResolvedContract& contract, const KeptFields& kept) {
    const GdnContract& c = contract.value;
    const bool gates = c.g_kind != GateKind::log && !kept.g_kind;
    const bool betas = c.beta_kind != BetaKind::prob && !kept.beta_kind;
    const bool layout = c.state_layout != StateLayout::key_value && !kept.state_layout;
    if (!gates && !betas && !layout) return file;
    ResolvedContract read = contract;
    GDNCTL_TRY_ASSIGN(const GdnProblem p, read_problem(file, read));
    const Prepared<double> ready = prepare<double>(p, c, 1);
    const auto replace = [&](const std::vector<std::string_view>& old, std::string name, Tensor tensor) {
        std::erase_if(file.tensors, [&](const NamedTensor& t) {
            const std::string_view canonical = canonical_name(t.name).canonical;
            return std::find(old.begin(), old.end(), canonical) != old.end();
        });
        file.tensors.push_back({std::move(name), std::move(tensor)});
    };
    const auto per_head = [&](const std::vector<double>& values) {
        return from_f64(in_file_order(p, values, p.dims.Hv), token_shape(p, {p.dims.Hv}), DType::f32);
    };
    if (gates) {
        replace({"g", "a", "A_log", "dt_bias"}, "g", per_head(ready.g));
        file.metadata["g_kind"] = "log";
    }
    if (betas) {
        replace({"beta", "b"}, "beta", per_head(ready.beta));
        file.metadata["beta_kind"] = "prob";
    }
    if (layout) {
        GDNCTL_TRY_ASSIGN(const Tensor* state, find_gdn_tensor(file, "initial_state"));
        if (state != nullptr) {
            replace({"initial_state"}, "initial_state",
                    from_f64(p.initial_state, state_shape(p, StateLayout::key_value), state->dtype));
        }
        file.metadata["state_layout"] = "B,H,K,V";
    }
    return file;
}

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
    const bool in_files = kernel.facts().takes_files;
    for (const KernelPass pass : k_passes) {
        if (in_files && pass == KernelPass::decode_in_place) continue;
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

namespace {

// Names an output that the pass should have but does not. A program that returns one gradient must return all.
// Gradients of gates and beta in the inputs' own form also count.
std::string missing_output(const TensorFile& outputs, KernelPass pass) {
    std::vector<std::vector<std::string_view>> all;
    if (pass != KernelPass::backward) all = {{"out"}, {"final_state"}};
    if (pass == KernelPass::backward || has_gradients(outputs)) {
        all.insert(all.end(), {{"dq"}, {"dk"}, {"dv"}, {"dg", "d_alpha", "d_a"}, {"dbeta", "d_b"}});
    }
    for (const auto& wanted : all) {
        const bool there = std::any_of(outputs.tensors.begin(), outputs.tensors.end(), [&](const NamedTensor& t) {
            return std::find(wanted.begin(), wanted.end(), canonical_name(t.name).canonical) != wanted.end();
        });
        if (!there && !outputs.metadata.contains(fmt::format("{}{}", k_without, wanted.front()))) {
            return std::string(wanted.front());
        }
    }
    return {};
}

// Shared by the runs of one judgement.
struct Question {
    const TensorFile& inputs;
    const GdnReference& reference;
    KernelPass pass;
    int threads;
    bool hints = true;
};

// The cotangents that the gradients are of: none of a result that the kernel does not return, and rounded to the dtype
// that it returns a result in.
TensorFile with_used_cotangents(TensorFile inputs, const TensorFile& outputs) {
    for (NamedTensor& entry : inputs.tensors) {
        const std::string_view name = canonical_name(entry.name).canonical;
        const auto dtype = outputs.metadata.find(fmt::format("{}{}", k_cotangent_dtype, name));
        if (name.starts_with("d_") && outputs.metadata.contains(fmt::format("{}{}", k_without, name.substr(2)))) {
            std::fill(entry.tensor.bytes.begin(), entry.tensor.bytes.end(), std::uint8_t{0});
        } else if (dtype != outputs.metadata.end()) {
            const DType narrow = dtype->second == "float16" ? DType::f16 : DType::bf16;
            entry.tensor = from_f64(to_f64(entry.tensor), entry.tensor.shape, narrow);
        }
    }
    return inputs;
}

// The report; a shape that cannot be compared is an error.
Result<GdnReport> compared(const TensorFile& outputs, const Question& asked) {
    GdnReference with_truth;
    const GdnReference* reference = &asked.reference;
    if (has_gradients(outputs)) {
        with_truth = asked.reference;
        const bool changed = std::any_of(outputs.metadata.begin(), outputs.metadata.end(), [](const auto& entry) {
            return entry.first.starts_with(k_without) || entry.first.starts_with(k_cotangent_dtype);
        });
        GDNCTL_TRY(changed
                       ? add_backward(with_truth, with_used_cotangents(asked.inputs, outputs), outputs, asked.threads)
                       : add_backward(with_truth, asked.inputs, outputs, asked.threads));
        reference = &with_truth;
    }
    CompareOptions options;
    options.hints = false;
    options.threads = asked.threads;
    GDNCTL_TRY_ASSIGN(GdnReport report, judge(*reference, outputs, options));
    auto longer = judge_with_longer_chunks(*reference, report, asked.inputs, outputs, asked.threads);
    if (longer) return std::move(longer->report);
    if (!asked.hints || report.verdict == Verdict::ok || report.verdict == Verdict::no_data) return report;
    options.hints = true;
    return judge(*reference, outputs, options);
}

// Judges one run; a shape that judge() rejects is the kernel's fault.
KernelVerdict judged(const KernelRun& run, const Question& asked) {
    KernelVerdict verdict;
    verdict.fault = run.fault;
    if (run.fault) return verdict;
    if (const std::string missing = missing_output(run.outputs, asked.pass); !missing.empty()) {
        verdict.fault =
            KernelFault{KernelFaultKind::incomplete, fmt::format("{} was not returned at all", missing), {}};
        return verdict;
    }
    auto report = compared(run.outputs, asked);
    if (!report) {
        verdict.fault = KernelFault{KernelFaultKind::wrong_shape, report.error().text(), {}};
        return verdict;
    }
    verdict.report = std::move(*report);
    const auto& worst = verdict.report.worst;
    if (verdict.report.verdict == Verdict::wrong && worst && !std::isfinite(worst->got) && std::isfinite(worst->want)) {
        verdict.fault = KernelFault{KernelFaultKind::non_finite, verdict.report.reason, {}};
    }
    return verdict;
}

}  // namespace

bool has_gradients(const TensorFile& file) {
    return std::any_of(file.tensors.begin(), file.tensors.end(),
                       [](const NamedTensor& t) { return canonical_name(t.name).role == GdnRole::gradient; });
}

KernelVerdict judge_run(const KernelRun& run, const TensorFile& inputs, const GdnReference& reference, int threads,
                        KernelPass pass, bool hints) {
    return judged(run, {inputs, reference, pass, threads, hints});
}

TensorFile with_cotangents(const TensorFile& inputs, const GdnReference& reference, std::uint64_t seed) {
    const GdnProblem& p = reference.problem;
    const GdnContract& c = reference.contract.value;
    GdnCotangents cotangents = random_cotangents(p, seed);
    for (double& x : cotangents.d_out) x = rounded_to(x, out_dtype_of(c, p));
    TensorFile file = inputs;
    for (NamedTensor& entry : cotangents_file(p, c, cotangents).tensors) file.tensors.push_back(std::move(entry));
    return file;
}

}  // namespace gdnctl::oracle
