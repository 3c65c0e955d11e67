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

// As the policies of the loop: "fail", "count-failure", "continue".
enum class ValidationPolicy { fail, count_failure, go_on };

enum class ValidationMode { automatic, required, profile_only, off };
std::string_view to_text(ValidationMode mode);

// The settings of the profile that a loop takes, where they differ from those of one taken by hand.
ProfileSettings gate_profile_settings();

struct ValidationOptions {
    ValidationMode mode = ValidationMode::automatic;  // required with any option of validation or performance, else off
    ValidationPolicy policy = ValidationPolicy::fail;
    std::int64_t max_attempts = -1;  // of tests and of the profile; negative: until it works, or cannot
    std::int64_t retry_sleep_s = 120;
    std::int64_t test_timeout_s = 1800, profile_timeout_s = 3600;
    std::int64_t log_tail = 400;  // last lines of a failed job's log that are searched for its first failing case
    TestSelection::Suite suite = TestSelection::Suite::both;
    std::string pytest_args;
    std::vector<std::string> clusters;
    bool cluster_auto = false;
    std::vector<std::string> cluster_exclude;  // empty: vllm, big-run
    bool cross_tpu_tests = false;
    std::string tpu = "auto";  // of tests
    bool dev_no_sync = false;
    ProfileSettings profile = gate_profile_settings();
    std::vector<std::string> profile_env;
    std::string marin_prefix;  // of a profile on the held TPU; empty: that of its cluster
    // Of a second profile, beside the candidate's: "auto" and "off" leave its first one's.
    std::string ce_compare_implementation = "auto", ce_compare_bwd_mode = "off";
};

// The cross-entropy of a run.
struct CeChoice {
    std::string implementation, bwd_mode;
    bool operator==(const CeChoice&) const = default;
};
// Of the second profile; nullopt: there is none.
std::optional<CeChoice> ce_comparison(const ValidationOptions& options);

enum class PerfMode { automatic, required, off };  // automatic: with validation

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

// Whether runs of these settings report to Weights & Biases at all.
bool reports_to_wandb(const Target& target, const ValidationOptions& options);

struct GateChoices {
    ValidationOptions validation;
    PerfOptions perf;
    bool used = false;  // the command line has one of these options, be it with its default
};

// The modes that are meant: validation is on when anything of validation or performance is asked for, performance when
// validation is. Errors: usage, in the recipe's words.
struct GateModes {
    ValidationMode validation = ValidationMode::off;
    bool perf = false;
};
Result<GateModes> resolve_modes(const GateChoices& choices);
// Errors: usage (numbers out of range, KEY=VALUE that is none).
Status check_gates(const GateChoices& choices);

// The policy that is meant: built in, then the target's `gates`, the file, the options. Errors: those of the file.
Result<PerfPolicy> policy_of(const PerfOptions& options, const Target& target, const std::filesystem::path& cwd);

}  // namespace gdnctl::loop
