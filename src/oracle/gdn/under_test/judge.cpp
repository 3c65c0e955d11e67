#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "oracle/gdn/compare/chunk_length.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::oracle {

namespace {

// Bit for bit, except that -0 equals 0, since the disguise changes the sign of zeros too.
bool same_values(const Tensor& a, const Tensor& b) {
    if (a.bytes == b.bytes) return true;
    if (a.dtype != b.dtype || a.bytes.size() != b.bytes.size() || !is_floating(a.dtype)) return false;
    for (std::size_t i = 0; i < a.count(); ++i) {
        const double x = element(a, i);
        const double y = element(b, i);
        if (x != y && !(std::isnan(x) && std::isnan(y))) return false;
    }
    return true;
}

bool same_values(const TensorFile& a, const TensorFile& b) {
    return std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                      [](const NamedTensor& x, const NamedTensor& y) { return same_values(x.tensor, y.tensor); });
}

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
        if (!there) return std::string(wanted.front());
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

// The report; a shape that cannot be compared is an error.
Result<GdnReport> compared(const TensorFile& outputs, const Question& asked) {
    GdnReference with_truth;
    const GdnReference* reference = &asked.reference;
    if (has_gradients(outputs)) {
        with_truth = asked.reference;
        GDNCTL_TRY(add_backward(with_truth, asked.inputs, outputs, asked.threads));
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

bool judgeable(const GdnReference& reference) { return reference.unstable_reason.empty(); }

KernelFault unsteady(std::string_view when, const KernelVerdict& now) {
    return {KernelFaultKind::unsteady,
            fmt::format("right in the first call, but {}: {}", when, now.fault ? now.fault->text : now.report.reason),
            {}};
}

}  // namespace

bool has_gradients(const TensorFile& file) {
    return std::any_of(file.tensors.begin(), file.tensors.end(),
                       [](const NamedTensor& t) { return canonical_name(t.name).role == GdnRole::gradient; });
}

KernelVerdict judge_run(const KernelRun& run, const TensorFile& inputs, const GdnReference& reference, int threads,
                        KernelPass pass) {
    return judged(run, {inputs, reference, pass, threads});
}

Result<KernelVerdict> judge_kernel(Kernel& kernel, const TensorFile& inputs, const GdnReference& reference, int threads,
                                   std::uint64_t seed, KernelPass pass, bool hints) {
    const ResolvedContract& contract = reference.contract;
    const Question asked{inputs, reference, pass, threads, hints};
    GDNCTL_TRY_ASSIGN(const KernelRun first, run_pass(kernel, pass, inputs, contract, threads));
    KernelVerdict verdict = judged(first, asked);
    const bool acceptable = verdict.report.verdict == Verdict::ok || verdict.report.verdict == Verdict::suspect;
    if (verdict.report.verdict != Verdict::ok) verdict.outputs = first.outputs;
    if (verdict.fault || !kernel.worth_repeating() || !judgeable(reference) || !acceptable) return verdict;

    const StateLayout layout = contract.value.state_layout;
    // Signs follow the heads of the file's tensors.
    const bool other_axes = reference.problem.repeated_keys || contract.value.layout == TokenLayout::heads_first;
    const Disguise disguise = other_axes ? Disguise() : Disguise(reference.problem.dims, contract.value.head_map, seed);
    TensorFile other = inputs;
    apply(disguise, other, layout);
    GDNCTL_TRY_ASSIGN(KernelRun second, run_pass(kernel, pass, other, contract, 1));
    apply(disguise, second.outputs, layout);  // applying the signs again removes them
    GDNCTL_TRY_ASSIGN(const KernelRun third, run_pass(kernel, pass, inputs, contract, threads));
    const std::pair<const KernelRun*, const char*> again[] = {
        {&second, "wrong for inputs with other signs, on one thread"},
        {&third, "wrong when it was given the same inputs again"}};
    for (const auto& [run, when] : again) {
        if (!run->fault && same_values(run->outputs, first.outputs)) continue;
        verdict.bit_equal = false;
        const KernelVerdict now = judged(*run, asked);
        if (now.fault || now.report.verdict != verdict.report.verdict) {
            const bool own_verdict = now.fault && now.fault->kind != KernelFaultKind::non_finite &&
                                     now.fault->kind != KernelFaultKind::incomplete;
            verdict.fault = own_verdict ? *now.fault : unsteady(when, now);
            return verdict;
        }
    }
    return verdict;
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
