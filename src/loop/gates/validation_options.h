// Options of the validation and performance stages: plain values with their defaults. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/measure/wandb_metric.h"
#include "loop/perf/policy.h"
#include "target/target.h"

namespace gdnctl::loop {

// The same policies as those of the loop: "fail", "count-failure", "continue".
enum class ValidationPolicy { fail, count_failure, go_on };

enum class ValidationMode { automatic, required, profile_only, off };
std::string_view to_text(ValidationMode mode);

// automatic: if the target has an oracle, and it judges the base OK.
enum class OracleMode { automatic, required, off };
std::string_view to_text(OracleMode mode);

// The profile settings of a loop where they differ from those of a manual profile.
ProfileSettings gate_profile_settings();

struct ValidationOptions {
    ValidationMode mode = ValidationMode::automatic;  // required with any option of validation or performance, else off
    OracleMode oracle = OracleMode::automatic;
    ValidationPolicy policy = ValidationPolicy::fail;
    std::int64_t max_attempts = -1;  // for tests and profile; negative: until it succeeds or cannot
    std::int64_t retry_sleep_s = 120;
    std::int64_t test_timeout_s = 1800, profile_timeout_s = 3600;
    std::int64_t log_tail = 400;  // number of last lines of a failed job's log to search for its first failing case
    TestSelection::Suite suite = TestSelection::Suite::both;
    std::string pytest_args;
    std::vector<std::string> clusters;
    bool cluster_auto = false;
    std::vector<std::string> cluster_exclude;  // empty: vllm, big-run
    bool cross_tpu_tests = false;
    std::string tpu = "auto";  // for tests
    bool dev_no_sync = false;
    ProfileSettings profile = gate_profile_settings();
    std::vector<std::string> profile_env;
    std::string marin_prefix;  // for a profile on the held TPU; empty: the bucket of its cluster
    // For a second profile of the candidate: "auto" and "off" keep the settings of the first.
    std::string ce_compare_implementation = "auto", ce_compare_bwd_mode = "off";
};

// The cross-entropy of a run.
struct CeChoice {
    std::string implementation, bwd_mode;
    bool operator==(const CeChoice&) const = default;
};
// For the second profile; nullopt: there is none.
std::optional<CeChoice> ce_comparison(const ValidationOptions& options);

enum class PerfMode { automatic, required, off };  // automatic: with validation
std::string_view to_text(PerfMode mode);

struct PerfOptions {
    PerfMode mode = PerfMode::automatic;
    std::string state_file;  // empty: <log-dir>/perf_state.json
    std::string policy_file;
    std::string metric;  // empty: the target's, else throughput/mfu
    std::optional<double> min_improvement_pct, max_regression_pct, override_pct, upper_bound_step_ms;
    RegressionPolicy regression_policy = RegressionPolicy::revert_count_failure;
    std::int64_t pairs = 9;
    RecordedOptions recorded;
    std::map<std::string, std::optional<double>> limits;  // by name, see limit_options()
};

// Whether runs with these settings report to Weights & Biases.
bool reports_to_wandb(const Target& target, const ValidationOptions& options);

struct GateChoices {
    ValidationOptions validation;
    PerfOptions perf;
    bool used = false;  // the command line has one of these options, even with its default value
};

// The modes in effect: validation is on if any option of validation or performance is given, performance if validation
// is on. Errors: usage, in the recipe's wording.
struct GateModes {
    ValidationMode validation = ValidationMode::off;
    bool perf = false;
    bool oracle = false;  // if the target has one; set by GateStages
};
Result<GateModes> resolve_modes(const GateChoices& choices);
// Errors: usage (numbers out of range, malformed KEY=VALUE).
Status check_gates(const GateChoices& choices);

// The policy in effect: built-in values, overridden by the target's `gates`, the file, and the options, in this order.
// Errors: those of the file.
Result<PerfPolicy> policy_of(const PerfOptions& options, const Target& target, const std::filesystem::path& cwd);

}  // namespace gdnctl::loop
