// Reads the numbers that a profile run printed. Only the run's own output counts. Pure except for read_evidence().
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/measure/measurement.h"
#include "loop/measure/oracle_finding.h"
#include "services/job/output.h"
#include "target/target.h"

namespace gdnctl::loop {

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

// The numbers of a JSON object, with nested ones by path ("forward/median_ms"); at most 500.
MetricMap numbers_of(std::string_view object);

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
