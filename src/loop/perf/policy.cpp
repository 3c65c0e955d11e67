#include "loop/perf/policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/text.h"

namespace gdnctl::loop {

namespace {

constexpr std::array<std::string_view, 12> k_perf_verdicts = {"baseline",
                                                              "promoted",
                                                              "within_threshold",
                                                              "regression",
                                                              "control_flow_regression",
                                                              "promote_corrupt_champion",
                                                              "metric_missing",
                                                              "incomparable",
                                                              "common_factor",
                                                              "aa_ok",
                                                              "baseline_shift",
                                                              "quarantined"};

constexpr std::string_view k_device_time = "trace:", k_kernel_time = "trace:kernel", k_step_time = "step_duration_ms";

constexpr std::array<std::string_view, 5> k_regression_policies = {"revert-count-failure", "revert-continue", "fail",
                                                                   "count-failure", "continue"};

// Times of parts that do not contain one another, because a sum scales with its parts.
constexpr std::array<std::string_view, 15> k_buckets = {"forward_closed_call_ms",
                                                        "backward_closed_call_ms",
                                                        "while_ms",
                                                        "conditional_ms",
                                                        "ce_forward_pallas_ms",
                                                        "all_gather_ms",
                                                        "shard_map_ms",
                                                        "layout_shell_budget_ms",
                                                        "residual_add_shell_budget_ms",
                                                        "ad_shell_budget_ms",
                                                        "sharding_shell_budget_ms",
                                                        "xprof_idle_attributed_ms",
                                                        "dispatch_shard_shell_delta_ms",
                                                        "ad_wrapper_shell_delta_ms",
                                                        "hybrid_generic_shell_delta_budget_ms"};

struct Consequence {
    bool ok, count, undo;
    int rc;
};

Consequence consequence_of(RegressionPolicy policy) {
    switch (policy) {
        case RegressionPolicy::revert_count_failure: return {true, true, true, 0};
        case RegressionPolicy::revert_continue: return {true, false, true, 0};
        case RegressionPolicy::count_failure: return {true, true, false, 0};
        case RegressionPolicy::go_on: return {true, false, false, 0};
        case RegressionPolicy::fail: break;
    }
    return {false, true, false, 1};
}

void apply(PerfDecision& decision, const Consequence& c) {
    decision.ok = c.ok;
    decision.count_failure = c.count;
    decision.undo = c.undo;
    decision.rc = c.rc;
}

// A candidate that is not distinguishable from the champion is not a failure.
bool undoes_held_back(const PerfPolicy& policy, bool paired) {
    return policy.hold == Hold::refuse || (policy.hold == Hold::automatic && paired);
}

// Without a number nothing can be kept; only policies that remove the commit can continue.
Consequence without_number(RegressionPolicy policy) {
    const Consequence c = consequence_of(policy);
    return c.undo ? c : Consequence{false, true, false, 1};
}

void hold(const PerfQuestion& q, PerfDecision& decision) {
    decision.undo = undoes_held_back(q.policy, q.pairs.has_value());
}

PerfDecision missing(const PerfQuestion& q) {
    PerfDecision decision;
    decision.verdict = PerfVerdict::metric_missing;
    decision.why_not_compared = "no " + q.candidate.metric + " was measured";
    apply(decision, without_number(q.on_regression));
    return decision;
}

std::string incomparable_why(const PerfQuestion& q, const Measurement& champion) {
    if (champion.metric != q.candidate.metric) {
        return fmt::format("metric: {} -> {}", champion.metric, q.candidate.metric);
    }
    // A median over steps and the number of the last step are two things.
    if (!is_same_source(champion, q.candidate)) {
        return fmt::format("metric source: {} -> {}", champion.source, q.candidate.source);
    }
    // Records of other programs have none.
    if (champion.fingerprint.asked.empty()) return {};
    auto why = differences(champion.fingerprint.asked, q.candidate.fingerprint.asked);
    const auto& free = q.policy.effective_classes;
    if (why.empty() && std::find(free.begin(), free.end(), q.change_class) == free.end()) {
        why = differences(champion.fingerprint.effective, q.candidate.fingerprint.effective);
    }
    return text::join(why, "; ");
}

// Whether these times, if they are of pairs, differ by more than the pairs do among themselves.
bool is_sure(const std::vector<double>& before, const std::vector<double>& after) {
    if (before.size() != after.size()) return true;
    std::vector<double> d;
    for (std::size_t i = 0; i < before.size(); ++i) d.push_back(pair_difference(before[i], after[i], false));
    const PairLook look = judge_pairs(d, PairRule{});
    return look.low > 0.0 || look.high < 0.0;
}

// Device time and wall time that changed in opposite directions, each by more than identical code does; empty: they did
// not, or only one of them is known.
std::string opposite_change(const PerfQuestion& q) {
    const Measurement& before = q.champion->measured;
    const Measurement& after = q.candidate;
    if (before.wall_ms.empty() || after.wall_ms.empty() || !after.source.starts_with(k_device_time)) return {};
    const double device = delta_percent(median_of(before.points), median_of(after.points));
    const double wall = delta_percent(median_of(before.wall_ms), median_of(after.wall_ms));
    const bool opposite = (device < 0.0) != (wall < 0.0);
    // A single run does not tell how much the wall time varies.
    const bool unknown = std::max(before.wall_ms.size(), after.wall_ms.size()) < 3;
    if (!opposite || unknown || !is_sure(before.points, after.points) || !is_sure(before.wall_ms, after.wall_ms) ||
        std::abs(device) <= aa_band_pct(q.policy, before.points, after.points) ||
        std::abs(wall) <= aa_band_pct(q.policy, before.wall_ms, after.wall_ms)) {
        return {};
    }
    return fmt::format("device time changed by {:+.2f} %, wall time by {:+.2f} % ({} -> {})", device, wall,
                       quantity(median_of(before.wall_ms), "ms"), quantity(median_of(after.wall_ms), "ms"));
}

// Of a kernel's time: whether the rest of the step took back more than half of the gain.
bool is_moved(const Measurement& before, const Measurement& after) {
    if (after.source != k_kernel_time || !before.trace || !after.trace) return false;
    const auto step_before = before.metrics.find(k_step_time), step_after = after.metrics.find(k_step_time);
    if (step_before == before.metrics.end() || step_after == after.metrics.end()) return false;
    const double gain_ms = (*before.value - *after.value) / 1000.0;  // from us
    const double given_back_ms = step_after->second - step_before->second + gain_ms;
    return gain_ms > 0.0 && given_back_ms > gain_ms / 2.0;
}

void run_gates(const PerfQuestion& q, PerfDecision& decision) {
    if (*decision.gain_pct >= q.policy.override_pct) return;
    const Measurement& before = q.champion->measured;
    // Budgets of a trace are not compared with numbers of a log.
    const bool same = before.trace.has_value() == q.candidate.trace.has_value();
    decision.gates = same ? evaluate_gates(q.policy, before.metrics, q.candidate.metrics, q.change_class)
                          : evaluate_gates(q.policy, {}, {}, q.change_class);
    for (const GateResult& gate : decision.gates) {
        if (gate.kind == GateResult::Kind::fail) decision.reasons.push_back(gate.reason);
    }
}

PerfVerdict verdict_by_metric(const PerfQuestion& q, double gain_pct) {
    if (q.pairs) {
        if (q.pairs->verdict == PairVerdict::keep) return PerfVerdict::promoted;
        return q.pairs->verdict == PairVerdict::refuse ? PerfVerdict::regression : PerfVerdict::within_threshold;
    }
    if (gain_pct >= q.policy.min_improvement_pct) return PerfVerdict::promoted;
    return gain_pct <= -q.policy.max_regression_pct ? PerfVerdict::regression : PerfVerdict::within_threshold;
}

std::string short_sha(std::string_view commit) { return std::string(commit.substr(0, 12)); }

// "; not promoted, as the machine was busy: other programs use 1.9 of 2 processors"
std::string busy_text(const PerfDecision& decision) {
    const std::string words = busy_words(decision);
    return words.empty() ? words : "; " + words;
}

// Scripts match these lines, in which a percentage has no sign of one.
std::string_view unit_in_recipe(std::string_view unit) { return unit == "%" ? std::string_view() : unit; }

std::string value_text(const PerfQuestion& q) {
    return q.candidate.value ? quantity(*q.candidate.value, unit_in_recipe(q.unit)) : std::string("unknown");
}

// "8.2 ms -> 3.6 ms (+126.55%, source=cli-output); 2.27x faster (1.25-4.1x, 3 pairs)"
std::string change_text(const PerfQuestion& q, const PerfDecision& decision) {
    if (!decision.gain) return {};
    runlog::Gain gain = *decision.gain;
    gain.unit = unit_in_recipe(gain.unit);
    const std::string words = runlog::gain_text(gain);
    const bool moved = !decision.labels.empty();
    return fmt::format("{} ({}%, source={}){}{}{}{}", runlog::compared_text(gain),
                       gain.factor ? runlog::percent_text(gain) : signed_number(decision.gain_pct.value_or(0.0), 2),
                       q.candidate.source, words.empty() ? "" : "; ", words,
                       moved ? "; moved: the rest of the step gave back more than half of it" : "",
                       busy_text(decision));
}

runlog::Gain gain_of(const PerfQuestion& q) {
    const Measurement& champion = q.champion->measured;
    runlog::Gain gain;
    gain.metric = q.candidate.metric;
    gain.unit = q.unit;
    gain.lower_is_better = !q.higher_is_better;
    gain.before = champion.value;
    gain.after = q.candidate.value;
    gain.lone_baseline = q.lone_baseline;
    gain.factor = runlog::speed_factor(gain.before, gain.after, gain.lower_is_better);
    if (!q.pairs) return gain;
    gain.before_runs = champion.points;
    gain.after_runs = q.candidate.points;
    gain.pairs = q.pairs->n;
    gain.factor = std::exp(q.pairs->mean);
    if (q.pairs->low < q.pairs->high) {
        gain.low = std::exp(q.pairs->low);
        gain.high = std::exp(q.pairs->high);
    }
    return gain;
}

}  // namespace

std::string_view to_text(PerfVerdict verdict) { return k_perf_verdicts[static_cast<std::size_t>(verdict)]; }

std::optional<PerfVerdict> parse_perf_verdict(std::string_view text) {
    const auto at = std::find(k_perf_verdicts.begin(), k_perf_verdicts.end(), text);
    if (at == k_perf_verdicts.end()) return std::nullopt;
    return static_cast<PerfVerdict>(at - k_perf_verdicts.begin());
}

bool is_rejection(PerfVerdict verdict) {
    return verdict == PerfVerdict::regression || verdict == PerfVerdict::control_flow_regression;
}

std::string_view to_text(RegressionPolicy policy) { return k_regression_policies[static_cast<std::size_t>(policy)]; }

double aa_band_pct(const PerfPolicy& policy, const std::vector<double>& champion,
                   const std::vector<double>& candidate) {
    constexpr double k_deviation_per_mad = 1.4826;
    double widest = 0.0;
    for (const std::vector<double>* points : {&champion, &candidate}) {
        if (points->size() < 3 || median_of(*points) == 0.0) continue;
        widest = std::max(widest, 100.0 * mad_of(*points) / std::abs(median_of(*points)));
    }
    return std::max(policy.max_regression_pct, 3.0 * k_deviation_per_mad * widest);
}

double delta_percent(double champion, double candidate) {
    const double delta = candidate - champion;
    if (champion != 0.0) return delta / std::abs(champion) * 100.0;
    if (delta == 0.0) return 0.0;
    return std::copysign(std::numeric_limits<double>::infinity(), delta);
}

PerfDecision decide(const PerfQuestion& q) {
    if (!q.candidate.value) return missing(q);
    PerfDecision decision;
    decision.busy = q.candidate.busy;
    if (q.champion == nullptr) return decision;
    if (q.pairs && decision.busy.empty()) decision.busy = q.champion->measured.busy;
    if (!q.champion->measured.value) {
        decision.verdict = PerfVerdict::promote_corrupt_champion;
        return decision;
    }
    decision.why_not_compared = incomparable_why(q, q.champion->measured);
    if (!decision.why_not_compared.empty()) {
        decision.verdict = PerfVerdict::incomparable;
        hold(q, decision);
        return decision;
    }
    decision.delta_pct = delta_percent(*q.champion->measured.value, *q.candidate.value);
    decision.gain = gain_of(q);
    decision.gain_pct = q.higher_is_better ? *decision.delta_pct : -*decision.delta_pct;
    if (q.pairs) decision.gain_pct = to_percent(q.pairs->mean);
    // Pairs measure the champion again: a common factor there is the candidate's own.
    if (!q.pairs && !q.base_is_sound) {
        decision.why_not_compared = common_factor_alarm(q.champion->measured.metrics, q.candidate.metrics);
    }
    if (!decision.why_not_compared.empty()) {
        decision.verdict = PerfVerdict::common_factor;
        hold(q, decision);
        return decision;
    }
    if (is_moved(q.champion->measured, q.candidate)) decision.labels.emplace_back("moved");
    decision.why_not_compared = opposite_change(q);
    if (!decision.why_not_compared.empty()) {
        decision.verdict = PerfVerdict::quarantined;
        hold(q, decision);
        return decision;
    }
    run_gates(q, decision);
    decision.verdict =
        decision.reasons.empty() ? verdict_by_metric(q, *decision.gain_pct) : PerfVerdict::control_flow_regression;
    if (decision.verdict == PerfVerdict::promoted && !q.pairs && !decision.busy.empty()) {
        decision.verdict = PerfVerdict::within_threshold;
        decision.held_as_busy = true;
    }
    decision.gain->busy = decision.busy;
    if (is_rejection(decision.verdict)) apply(decision, consequence_of(q.on_regression));
    if (decision.verdict == PerfVerdict::within_threshold) hold(q, decision);
    return decision;
}

PerfDecision recorded_decision(const PerfRecord& record, const PerfPolicy& policy, RegressionPolicy on_regression) {
    PerfDecision decision;
    decision.verdict = record.decision;
    decision.delta_pct = record.delta_vs_champion_pct;
    decision.gain = record.gain;
    decision.busy = record.gain ? record.gain->busy : record.measured.busy;
    if (record.pairs) decision.gain_pct = to_percent(record.pairs->mean);
    decision.gates = record.gates;
    decision.labels = record.labels;
    for (const GateResult& gate : record.gates) {
        if (gate.kind == GateResult::Kind::fail) decision.reasons.push_back(gate.reason);
    }
    if (is_rejection(record.decision)) {
        apply(decision, consequence_of(on_regression));
    } else if (record.decision == PerfVerdict::metric_missing) {
        apply(decision, without_number(on_regression));
    } else if (!decision.becomes_champion()) {
        decision.undo = undoes_held_back(policy, record.pairs.has_value());
    }
    return decision;
}

std::string common_factor_alarm(const MetricMap& before, const MetricMap& after) {
    constexpr double k_same = 0.01;      // of the factor
    constexpr double k_changed = 0.02;   // less is noise
    constexpr double k_least_ms = 0.01;  // of a bucket
    std::vector<std::pair<double, std::string>> factors;
    for (const std::string_view name : k_buckets) {
        const auto b = before.find(name), a = after.find(name);
        if (b == before.end() || a == after.end() || b->second < k_least_ms || a->second < k_least_ms) continue;
        factors.emplace_back(a->second / b->second, name);
    }
    std::sort(factors.begin(), factors.end());
    for (std::size_t i = 0; i + 2 < factors.size(); ++i) {
        const double factor = factors[i].first;
        if (std::abs(factor - 1.0) < k_changed || factors[i + 2].first > factor * (1.0 + k_same)) continue;
        return fmt::format(
            "{}, {} and {} all changed by {:+.1f} %: the base, the measurement or the machine has changed, not the "
            "candidate",
            factors[i].second, factors[i + 1].second, factors[i + 2].second, (factor - 1.0) * 100.0);
    }
    return {};
}

std::string busy_words(const PerfDecision& decision) {
    if (decision.busy.empty()) return {};
    return (decision.held_as_busy ? "not promoted, as the machine was busy: " : "the machine was busy: ") +
           decision.busy +
           (decision.held_as_busy ? "; measure it in pairs (--perf-pairs 3 or more), or again when it is quiet" : "");
}

std::string decision_text(const PerfQuestion& q, const PerfDecision& decision, std::string_view commit) {
    switch (decision.verdict) {
        case PerfVerdict::baseline:
            return fmt::format("performance baseline initialized: {}={} @ {} (source={})", q.candidate.metric,
                               value_text(q), short_sha(commit), q.candidate.source) +
                   busy_text(decision);
        case PerfVerdict::promote_corrupt_champion:
            return fmt::format("replacing the performance champion, which had no value: {}={} @ {} (source={})",
                               q.candidate.metric, value_text(q), short_sha(commit), q.candidate.source);
        case PerfVerdict::promoted: return "performance champion promoted: " + change_text(q, decision);
        case PerfVerdict::within_threshold:
            return "performance within hold band vs champion: " + change_text(q, decision);
        case PerfVerdict::regression: return "performance regression detected vs champion: " + change_text(q, decision);
        case PerfVerdict::control_flow_regression: {
            std::string out = "performance control-flow gate triggered:";
            for (const std::string& reason : decision.reasons) out += "\n  - " + reason;
            return out;
        }
        case PerfVerdict::metric_missing: return "performance not judged: " + decision.why_not_compared;
        case PerfVerdict::incomparable:
            return "performance not compared with the champion: " + decision.why_not_compared;
        case PerfVerdict::common_factor: return "performance not judged: " + decision.why_not_compared;
        case PerfVerdict::quarantined: return "performance quarantined: " + decision.why_not_compared;
        case PerfVerdict::aa_ok:
        case PerfVerdict::baseline_shift: break;
    }
    return {};
}

}  // namespace gdnctl::loop
