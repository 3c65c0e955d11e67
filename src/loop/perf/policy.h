// Decides what becomes of a measured candidate: champion, kept or refused. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/measure/measurement.h"
#include "loop/measure/pairs.h"
#include "loop/perf/gates.h"
#include "runlog/records/gain.h"

namespace gdnctl::loop {

enum class PerfVerdict {
    baseline,
    promoted,
    within_threshold,
    regression,
    control_flow_regression,
    promote_corrupt_champion,
    // ours
    metric_missing,
    incomparable,
    common_factor,
    aa_ok,           // HEAD was measured unchanged, and is where the champion is
    baseline_shift,  // it is not: HEAD is the new baseline
    quarantined,     // device time and wall time changed in opposite directions
};
std::string_view to_text(PerfVerdict verdict);  // as the state file has it
std::optional<PerfVerdict> parse_perf_verdict(std::string_view text);
bool is_rejection(PerfVerdict verdict);  // regression or control_flow_regression

// A line of the state file's history, and what a champion is.
struct PerfRecord {
    int iteration = 0;
    std::string commit;
    Measurement measured;
    std::int64_t timestamp_unix = 0;
    PerfVerdict decision = PerfVerdict::baseline;
    std::optional<double> delta_vs_champion_pct;
    std::string change_class;
    MetricMap baseline_metrics;
    std::string baseline_source;  // "champion"; empty: there was none
    std::vector<GateResult> gates;
    std::optional<PairLook> pairs;
    std::optional<runlog::Gain> gain;  // what was compared with what; nullopt: nothing was
    std::string unit;                  // of the metric; empty: none is known
    std::vector<std::string> labels;   // "moved": see PerfDecision
    bool suspect = false;              // refused against a baseline that had moved, as was found later
};

// --perf-regression-policy
enum class RegressionPolicy { revert_count_failure, revert_continue, fail, count_failure, go_on };
std::string_view to_text(RegressionPolicy policy);

struct PerfQuestion {
    const PerfPolicy& policy;
    RegressionPolicy on_regression = RegressionPolicy::revert_count_failure;
    bool higher_is_better = true;
    const Measurement& candidate;
    const PerfRecord* champion = nullptr;  // of the same fingerprint key; with pairs as measured in them
    std::string_view change_class = {};
    std::optional<PairLook> pairs = std::nullopt;        // nullopt: a single run each
    std::string_view unit = {};                          // of the metric
    std::optional<double> lone_baseline = std::nullopt;  // with pairs: what the champion's record says
    bool base_is_sound = false;  // HEAD was just measured unchanged: a common factor is the candidate's own
};

struct PerfDecision {
    PerfVerdict verdict = PerfVerdict::baseline;
    bool ok = true;  // the triple of the recipe: (ok, counts as a failure, exit code)
    bool count_failure = false;
    int rc = 0;
    bool undo = false;                 // the candidate is removed
    std::optional<double> delta_pct;   // of the metric, as it is
    std::optional<double> gain_pct;    // above 0 is better; compared with the limits of the policy
    std::optional<runlog::Gain> gain;  // the comparison, as shown in all outputs
    std::vector<GateResult> gates;     // empty: passed by the override, or nothing to compare with
    std::vector<std::string> reasons;  // of the gates that fired
    std::string why_not_compared;      // of incomparable, common_factor, metric_missing, quarantined
    // "moved": the rest of the step gave back more than half of a kernel's gain.
    std::vector<std::string> labels;
    std::string busy;           // what disturbed one of the runs; empty: nothing that is known of
    bool held_as_busy = false;  // it would have been promoted on a quiet machine
    bool becomes_champion() const {
        return verdict == PerfVerdict::baseline || verdict == PerfVerdict::promoted ||
               verdict == PerfVerdict::promote_corrupt_champion;
    }
};
PerfDecision decide(const PerfQuestion& question);

// The decision that a record tells of; what follows from it by these policies.
PerfDecision recorded_decision(const PerfRecord& record, const PerfPolicy& policy, RegressionPolicy on_regression);

// By how many percent numbers of identical code may differ: by what the policy calls no regression, or by three
// deviations of either side, as the median distance shows them.
double aa_band_pct(const PerfPolicy& policy, const std::vector<double>& champion, const std::vector<double>& candidate);

// (candidate - champion) / |champion| * 100; a champion of 0: 0 or infinite.
double delta_percent(double champion, double candidate);

// Three buckets or more that changed by one factor, equal to 1 %, and not by chance: then not the candidate has changed
// but the base, the measurement or the machine. "forward_closed_call_ms, ... all changed by -50.0 %"; empty: no alarm.
std::string common_factor_alarm(const MetricMap& before, const MetricMap& after);

// What is said of it, without the prefix "[gdnctl] "; several lines for gates.
std::string decision_text(const PerfQuestion& question, const PerfDecision& decision, std::string_view commit);
// "the machine was busy: other programs use 1.9 of 2 processors"; empty: it was not.
std::string busy_words(const PerfDecision& decision);

}  // namespace gdnctl::loop
