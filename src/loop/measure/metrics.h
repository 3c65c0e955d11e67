// What a profile run leaves behind, as numbers: only what was printed by the run itself counts. Pure but for
// read_evidence().
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

// What is known of a job that was run: what ray-test and ray-profile report of theirs.
struct JobReport {
    std::string submission_id, backend, cluster, status, failure_class, message, target, entrypoint, tpu;
    std::optional<std::int64_t> driver_exit_code, start_ms, end_ms;
    bool tpu_evidence = false;
    bool runs_as_written = true;  // the run takes no settings: its command line says all
    std::string metric_name;      // of the target; empty: it has none
    std::optional<double> metric_value;

    bool ended() const { return status == "SUCCEEDED" || status == "FAILED" || status == "STOPPED"; }
    std::int64_t duration_ms() const { return start_ms && end_ms && *end_ms > *start_ms ? *end_ms - *start_ms : 0; }
};

// A job's log, read for what it tells.
struct Evidence {
    JobOutput output;
    std::string last_object;                // the last whole JSON object; empty: none
    std::vector<std::string> failed_tests;  // pytest's names of what failed, each once
    std::optional<double> max_abs;          // the largest difference that a failing comparison printed
    OracleFinding oracle;                   // the first item that the oracle does not pass
};
Evidence evidence_of(std::string_view log);
// The same of a file of any size.
Result<Evidence> read_evidence(const std::filesystem::path& log);

// Numbers of a JSON object, nested ones by path ("forward/median_ms"); at most 500.
MetricMap numbers_of(std::string_view object);

// hybrid or attn_only, and which part of the layers are GDN's.
struct ProfileModel {
    std::string architecture;  // empty: unknown
    std::optional<std::int64_t> layers_per_block, block_size;
    std::optional<double> fraction;
    bool operator==(const ProfileModel&) const = default;
};
// What was asked for; what the run reports wins over it (words of its `GDN profile model:` line).
ProfileModel model_of(const ProfileSettings& asked, const std::map<std::string, std::string>& reported);

// Settings that the run reports of itself, by name, and what was asked for of these, as far as anything was (`auto`
// asks for nothing). Fractions have six decimals, as runs print them.
struct SettingWords {
    std::map<std::string, std::string> requested, effective;
};
SettingWords setting_words(const ProfileSettings& asked, const ProfileReport& reported);

struct ProfileQuestion {
    std::string metric;  // what is looked for
    ProfileSettings settings;
    std::map<std::string, std::string> asked;  // of the fingerprint, as far as the caller knows it
};
// Everything that one profile run measured. `value` is absent where the metric is nowhere.
Measurement measurement_of(const JobReport& report, const Evidence& evidence, const ProfileQuestion& question);

// Where the data of a cluster lie: us-east5-a, us-east5, marin-us-east5 -> gs://marin-us-east5.
std::string bucket_of(std::string_view cluster);

}  // namespace gdnctl::loop
