// The performance policy as data, and as a file: thresholds, and gates that refuse a candidate although the metric did
// not fall. A gate compares a profile of the candidate with one of the champion. Pure except for read_policy_file().
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "loop/measure/measurement.h"
#include "target/target.h"

namespace gdnctl::loop {

// before = champion, after = candidate, drop = before - after.
enum class When {
    rises_over,       // after - before > limit
    drops_less_than,  // before - after < limit
    drops_by,         // before - after >= limit
    new_bucket,       // after >= limit and after - before > limit; a missing `before` counts as 0
};
std::string_view to_text(When when);

struct GateCondition {
    std::string metric;
    std::string otherwise;  // used on both sides where one side lacks `metric`; empty: none
    When when = When::rises_over;
    std::string limit;  // name of one of PerfPolicy::limits
    bool operator==(const GateCondition&) const = default;
};

// Refuses a candidate when all its conditions hold; needs all their numbers.
struct Gate {
    std::string id;  // [a-z0-9-]+
    std::vector<GateCondition> all;
    std::vector<std::string> classes;  // change classes it is about; empty: any
    // The reason, for people and scripts: {metric}, {before}, {after}, {rise}, {drop}, {limit} of the first condition,
    // {2.drop} of the second.
    std::string says;
    bool operator==(const Gate&) const = default;
};

// What becomes of a candidate that is neither better nor worse than the noise lets see.
enum class Hold { automatic, keep, refuse };  // automatic: keep with single runs, refuse with pairs
std::string_view to_text(Hold hold);

struct PerfPolicy {
    std::string name = "default";
    double min_improvement_pct = 0.25;
    double max_regression_pct = 1.0;
    double override_pct = 5.0;  // skip the gates for a gain of this many percent
    // A gain has to be beyond this share of the spread of a pair, too (see PairRule::noise_share).
    double noise_share = 0.4;
    Hold hold = Hold::automatic;
    std::vector<std::string> effective_classes;  // change classes that may change what is in effect (fingerprint)
    std::map<std::string, double, std::less<>> limits;
    std::vector<Gate> gates;
    bool operator==(const PerfPolicy&) const = default;
};

// The one built in.
PerfPolicy default_policy();

struct LimitOption {
    std::string_view limit;   // key of PerfPolicy::limits
    std::string_view option;  // "--perf-max-while-increase-ms"
    std::string_view help;
    std::string_view usual;  // value in the built-in policy
};
// The thresholds of the built-in policy that have an option.
std::span<const LimitOption> limit_options();

struct GateResult {
    enum class Kind { pass, fail, skip };
    std::string id;
    Kind kind = Kind::pass;
    std::string reason;   // of fail and skip
    std::string numbers;  // "while_ms 0.000 -> 31.500, limit 5.000"; empty: not all were measured
    bool operator==(const GateResult&) const = default;
};
std::string_view to_text(GateResult::Kind kind);

// All gates, in the policy's order. `change_class`: of the candidate; empty: it names none.
std::vector<GateResult> evaluate_gates(const PerfPolicy& policy, const MetricMap& champion, const MetricMap& candidate,
                                       std::string_view change_class);

// Derived numbers: remainder = step - train path, even if another value was given; with an upper bound also the gap to
// it, the explained part of the gap, and the interaction remainder.
void derive_budgets(MetricMap& metrics, std::optional<double> upper_bound_step_ms);

// A performance policy as a file (JSON, `gdnctl.policy/1`) and as the table `gates` of a target. Both are laid over the
// built-in policy: what they do not name stays. Pure but for read_policy_file().

// Everything, so that the text is a policy file again.
Json policy_json(const PerfPolicy& policy);

// `limits` are merged name by name, `gates` is replaced as a whole. Errors: config, naming `name` and the field: no
// JSON object, unknown key, wrong type, a gate that speaks of a limit that there is not.
Result<PerfPolicy> parse_policy(std::string_view text, std::string_view name, const PerfPolicy& base);
// A target's `gates`. Errors: the same, naming the file and line.
Result<PerfPolicy> policy_of_target(const Target& target, const PerfPolicy& base);
// The errors of policy_of_target().
Status check_gates(const Target& target);
// Errors besides: usage (no such file), local_io.
Result<PerfPolicy> read_policy_file(const std::filesystem::path& path, const PerfPolicy& base);

}  // namespace gdnctl::loop
