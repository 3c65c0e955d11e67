// What becomes of a measured candidate: champion, kept, refused. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/measure/fingerprint.h"
#include "loop/measure/pairs.h"
#include "loop/perf/gates.h"
#include "runlog/records/gain.h"

namespace gdnctl::loop {

// What a second profile of a commit said, with another cross-entropy: for the record, nothing is judged by it.
struct CeCompare {
    std::string implementation, bwd_mode;  // as asked for
    std::string backend_selected, profile_prefix, run_url, source;
    std::optional<double> value, delta_pct;  // of the metric; against the first profile's
    std::optional<std::int64_t> window_points;
    MetricMap metrics;
    std::string failure;  // why there is no number
    bool operator==(const CeCompare&) const = default;
};

// What profiles of one commit said.
struct Measurement {
    std::string metric;           // "throughput/mfu"
    std::optional<double> value;  // median of `points`; nullopt: nothing was to be read
    std::vector<double> points;
    std::string source;                         // "cli-output", "wandb-summary", "wandb-history-median[10:18]"
    std::optional<std::int64_t> window_points;  // of such a window, behind each of `points`: the fewest
    MetricMap metrics;                          // medians of everything that was measured
    Fingerprint fingerprint;
    std::string ce_backend_selected, ce_requested_implementation, ce_bwd_mode;
    std::string profile_architecture;  // "hybrid", "attn_only"; empty: unknown
    std::optional<std::int64_t> gdn_layers_per_block, gdn_block_size;
    std::optional<double> gdn_layer_fraction;
    std::optional<CeCompare> ce_ab_compare;
    std::string run_url;
    std::vector<std::string> warnings;  // what makes it less than was asked for
    std::string busy;                   // what else this machine did meanwhile; empty: nothing that is known of
    bool operator==(const Measurement&) const = default;
};

// Whether their numbers are of one kind; one that does not say is of any.
bool is_same_source(const Measurement& a, const Measurement& b);

// One measurement out of several of the same commit and conditions.
Measurement merged(std::vector<Measurement> runs);

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
    bool take_back = false;            // the candidate does not stay
    std::optional<double> delta_pct;   // of the metric, as it is
    std::optional<double> gain_pct;    // above 0 is better: what is held against the limits of the policy
    std::optional<runlog::Gain> gain;  // what was compared with what, as everybody is shown it
    std::vector<GateResult> gates;     // empty: passed by the override, or nothing to compare with
    std::vector<std::string> reasons;  // of the gates that fired
    std::string why_not_compared;      // of incomparable, common_factor, metric_missing
    std::string busy;                  // what disturbed one of the runs; empty: nothing that is known of
    bool held_as_busy = false;         // it would have been promoted on a quiet machine
    bool becomes_champion() const {
        return verdict == PerfVerdict::baseline || verdict == PerfVerdict::promoted ||
               verdict == PerfVerdict::promote_corrupt_champion;
    }
};
PerfDecision decide(const PerfQuestion& question);

// The decision that a record tells of; what follows from it by these policies.
PerfDecision recorded_decision(const PerfRecord& record, const PerfPolicy& policy, RegressionPolicy on_regression);

// (candidate - champion) / |champion| * 100; a champion of 0: 0 or infinite.
double delta_percent(double champion, double candidate);

// Three buckets or more that changed by one factor, equal to 1 %, and not by chance: then not the candidate has changed
// but the base, the measurement or the machine. "forward_closed_call_ms, ... all changed by -50.0 %"; empty: no alarm.
std::string common_factor_alarm(const MetricMap& before, const MetricMap& after);

// What is said of it, without the prefix "[gdnctl] "; several lines for gates.
std::string decision_text(const PerfQuestion& question, const PerfDecision& decision, std::string_view commit);
// "the machine was busy: other programs use 1.9 of 2 processors"; empty: it was not.
std::string busy_words(const PerfDecision& decision);
// "n=3, median 4.2 ms, MAD 0.01 ms"
std::string noise_text(const std::vector<double>& points, std::string_view unit = {});

}  // namespace gdnctl::loop
