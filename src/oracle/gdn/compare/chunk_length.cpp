#include "oracle/gdn/compare/chunk_length.h"

#include <algorithm>

#include <fmt/format.h>

namespace gdnctl::oracle {

namespace {

constexpr int k_longest_chunk = 512;
// How near the budget of its own chunk length a correct kernel is. Seen: 1.1.
constexpr double k_near = 2;
// A longer chunk widens no budget further than this: chunked forms count up to 30 times the other measurements.
constexpr double k_most_widened = 30;

bool declares_chunk(const ResolvedContract& contract) {
    // `oracle run` writes the default into its files.
    if (contract.value.chunk != GdnContract().chunk) return true;
    return std::any_of(contract.fields.begin(), contract.fields.end(), [](const ContractField& f) {
        return f.name == "chunk" && (f.origin == "--set" || f.origin == "--chunk");
    });
}

double worst_error(const GdnReport& report) {
    double worst = 0;
    for (const TensorReport& t : report.tensors) {
        // NaN is no error that a budget could allow.
        worst = t.error_over_budget <= HUGE_VAL ? std::max(worst, t.error_over_budget) : HUGE_VAL;
    }
    return worst;
}

}  // namespace

std::optional<LongerChunks> judge_with_longer_chunks(const GdnReference& r, const GdnReport& report,
                                                     const TensorFile& inputs, const TensorFile& dump, int threads) {
    if (report.verdict != Verdict::suspect && report.verdict != Verdict::wrong) return std::nullopt;
    if (declares_chunk(r.contract) || !r.unstable_reason.empty()) return std::nullopt;
    if (!(worst_error(report) <= k_near * k_most_widened)) return std::nullopt;
    std::int64_t tokens = 0;
    for (const GdnSequence& s : r.problem.sequences) tokens = std::max(tokens, s.end - s.begin);
    const CompareOptions plain{.hints = false, .threads = threads};
    for (int chunk = 2 * r.contract.value.chunk; chunk <= k_longest_chunk && tokens > chunk / 2; chunk *= 2) {
        ResolvedContract contract = r.contract;
        if (!set_field(contract, "chunk", fmt::format("{}", chunk), "found")) return std::nullopt;
        LongerChunks longer{make_reference(r.problem, std::move(contract), threads), {}, chunk};
        const auto near = [&] {
            auto judged = judge(longer.reference, dump, plain);
            if (!judged || !(worst_error(*judged) <= k_near)) return false;
            longer.report = std::move(*judged);
            return true;
        };
        if (!near()) continue;
        if (r.backward && (!add_backward(longer.reference, inputs, dump, threads) || !near())) continue;
        if (longer.report.verdict != Verdict::ok) continue;
        longer.report.reason =
            fmt::format("judged with the error budget of chunks of {} tokens; with chunks of {} it would be {}: {}",
                        chunk, r.contract.value.chunk, name_of(report.verdict), report.reason);
        return longer;
    }
    return std::nullopt;
}

}  // namespace gdnctl::oracle
