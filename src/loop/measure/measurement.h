// The numbers of a profile: what they are, how they are read from what a run printed, and the conditions under which
// they were measured. Only numbers measured under the same conditions are compared. Pure except for read_evidence().
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/measure/failing_case.h"
#include "services/job/output.h"
#include "target/target.h"

namespace gdnctl::loop {

struct Fingerprint {
    // What was requested and where it ran: target, metric, cluster, machine, settings, ... Champions are kept per set
    // of these.
    std::map<std::string, std::string> asked;
    // What was used in the end, such as the implementation that was chosen. The candidate's own code decides it.
    std::map<std::string, std::string> effective;
    bool operator==(const Fingerprint&) const = default;

    // Sixteen hexadecimal digits of a hash of `asked`.
    std::string key() const;
};

// "cluster: us-central1 -> us-east5", one for each difference; empty: none.
std::vector<std::string> differences(const std::map<std::string, std::string>& before,
                                     const std::map<std::string, std::string>& after);

// The numbers from profiles of one commit. Pure.

// Numbers of a profile by name ("while_ms", "throughput/mfu"). What was not measured is absent.
using MetricMap = std::map<std::string, double, std::less<>>;

// The result of a second profile of a commit with another cross-entropy. It is recorded but never used to judge.
struct CeCompare {
    std::string implementation, bwd_mode;  // as requested
    std::string backend_selected, profile_prefix, run_url, source;
    std::optional<double> value, delta_pct;  // value of the metric, and its change against the first profile
    std::optional<std::int64_t> window_points;
    MetricMap metrics;
    std::string failure;  // why there is no number
    bool operator==(const CeCompare&) const = default;
};

// The trace from which a measurement has budgets.
struct MeasuredTrace {
    std::string path, sha256;
    bool operator==(const MeasuredTrace&) const = default;
};

// The result of profiling one commit.
struct Measurement {
    std::string metric;           // "throughput/mfu"
    std::optional<double> value;  // median of `points`, their geometric mean after pairs; nullopt: no value was found
    std::vector<double> points;
    // "cli-output", "wandb-summary", "wandb-history-median[10:18]", "trace:step", "trace:kernel"
    std::string source;
    std::optional<std::int64_t> window_points;  // fewest values in such a window, over all `points`
    MetricMap metrics;                          // medians of everything measured
    Fingerprint fingerprint;
    std::string ce_backend_selected, ce_requested_implementation, ce_bwd_mode;
    std::string profile_architecture;  // "hybrid", "attn_only"; empty: unknown
    std::optional<std::int64_t> gdn_layers_per_block, gdn_block_size;
    std::optional<double> gdn_layer_fraction;
    std::optional<CeCompare> ce_ab_compare;
    std::optional<MeasuredTrace> trace;  // nullopt: `metrics` has nothing of a trace
    // With a metric of the trace: the wall time of each of `points`, which is of the step if the log has that, else of
    // the job.
    std::vector<double> wall_ms;
    std::string run_url;
    std::vector<std::string> warnings;  // why this is less than was requested
    std::string busy;                   // what else used this machine during the measurement; empty: nothing was found
    bool operator==(const Measurement&) const = default;
};

// Whether the two values come from the same kind of source. A measurement without a source matches any.
bool is_same_source(const Measurement& a, const Measurement& b);

// Combines several measurements of the same commit under the same conditions.
Measurement merged(std::vector<Measurement> runs);

// "n=3, median 4.2 ms, MAD 0.01 ms"
std::string noise_text(const std::vector<double>& points, std::string_view unit = {});

// Reads the numbers that a profile run printed. Only the run's own output counts. Pure except for read_evidence().

// What ray-test or ray-profile reports about a job.
struct JobReport {
    std::string submission_id, backend, cluster, status, failure_class, message, target, entrypoint, tpu;
    std::optional<std::int64_t> driver_exit_code, start_ms, end_ms;
    bool tpu_evidence = false;
    bool runs_as_written = true;  // the run takes no settings: it is the command line as written
    std::string metric_name;      // of the target; empty: the target has none
    std::optional<double> metric_value;

    bool ended() const { return status == "SUCCEEDED" || status == "FAILED" || status == "STOPPED"; }
    std::int64_t duration_ms() const { return start_ms && end_ms && *end_ms > *start_ms ? *end_ms - *start_ms : 0; }
};

// What was found in a job's log.
struct Evidence {
    JobOutput output;
    std::string last_object;                // the last JSON object; empty: none, or it is unusable
    std::vector<std::string> failed_tests;  // names of the failed pytest tests, without duplicates
    std::optional<double> max_abs;          // the largest difference printed by a failing comparison
    OracleFinding oracle;                   // the first item that fails in the oracle
};
Evidence evidence_of(std::string_view log);
// The same for a file of any size.
Result<Evidence> read_evidence(const std::filesystem::path& log);

// hybrid or attn_only, and the share of GDN layers.
struct ProfileModel {
    std::string architecture;  // empty: unknown
    std::optional<std::int64_t> layers_per_block, block_size;
    std::optional<double> fraction;
    bool operator==(const ProfileModel&) const = default;
};
// What was requested, overridden by what the run reports (the words of its `GDN profile model:` line).
ProfileModel model_of(const ProfileSettings& asked, const std::map<std::string, std::string>& reported);

// Settings that the run reports about itself, by name, and the requested values for the same names, if any (`auto`
// requests nothing). Fractions have six decimals, as runs print them.
struct SettingWords {
    std::map<std::string, std::string> requested, effective;
};
SettingWords setting_words(const ProfileSettings& asked, const ProfileReport& reported);

struct ProfileQuestion {
    std::string metric;  // the metric to read
    ProfileSettings settings;
    std::map<std::string, std::string> asked;  // the part of the fingerprint that the caller knows
};
// Everything that one profile run measured. `value` is absent if the metric was not found.
Measurement measurement_of(const JobReport& report, const Evidence& evidence, const ProfileQuestion& question);

// The bucket with a cluster's data: us-east5-a, us-east5, marin-us-east5 -> gs://marin-us-east5.
std::string bucket_of(std::string_view cluster);

}  // namespace gdnctl::loop
