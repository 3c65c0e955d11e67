#include "loop/perf/gates.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace {

constexpr std::array k_default_limits = {
    LimitOption{"max_while_increase_ms", "--perf-max-while-increase-ms", "largest allowed growth of `while`", "5.0"},
    LimitOption{"new_conditional_ms", "--perf-new-conditional-ms", "smallest `conditional` that counts as a new bucket",
                "5.0"},
    LimitOption{"max_dispatch_shard_shell_increase_ms", "--perf-max-dispatch-shard-shell-increase-ms",
                "largest allowed growth of the dispatch/shard shell", "2.0"},
    LimitOption{"max_ad_wrapper_shell_increase_ms", "--perf-max-ad-wrapper-shell-increase-ms",
                "largest allowed growth of the AD/wrapper shell", "1.0"},
    LimitOption{"max_xprof_idle_increase_ms", "--perf-max-xprof-idle-increase-ms",
                "largest allowed growth of idle time (xprof)", "0.5"},
    LimitOption{"min_xprof_dispatch_shard_shell_drop_ms", "--perf-min-xprof-dispatch-shard-shell-drop-ms",
                "smallest drop of the dispatch/shard shell (xprof) required of a change to the sharding envelope",
                "2.0"},
    LimitOption{"max_xprof_ad_wrapper_shell_increase_ms", "--perf-max-xprof-ad-wrapper-shell-increase-ms",
                "largest allowed growth of the AD/wrapper shell (xprof)", "1.0"},
    LimitOption{"max_train_path_budget_increase_ms", "--perf-max-train-path-budget-increase-ms",
                "largest allowed growth of the train path", "5.0"},
    LimitOption{"min_train_path_drop_ms", "--perf-min-train-path-drop-ms",
                "smallest drop that counts as a shorter train path", "1.0"},
    LimitOption{"step_duration_improvement_margin_ms", "--perf-step-duration-improvement-margin-ms",
                "smallest drop that counts as a shorter step", "0.2"},
    LimitOption{"min_dispatch_shard_shell_drop_ms", "--perf-min-dispatch-shard-shell-drop-ms",
                "smallest drop that counts as a smaller dispatch/shard shell", "1.0"},
    LimitOption{"max_remainder_budget_increase_ms", "--perf-max-remainder-budget-increase-ms",
                "largest allowed growth of the remainder and the interaction remainder", "2.0"},
    LimitOption{"max_decoder_layer_shell_budget_increase_ms", "--perf-max-decoder-layer-shell-budget-increase-ms",
                "largest allowed growth of the hybrid generic shell", "2.0"},
    LimitOption{"min_decoder_layer_shell_drop_ms", "--perf-min-decoder-layer-shell-drop-ms",
                "smallest drop that counts as a smaller hybrid generic shell", "1.0"},
};

constexpr std::string_view k_step = "step_duration_ms";
constexpr std::string_view k_margin = "step_duration_improvement_margin_ms";

GateCondition condition(std::string_view metric, When when, std::string_view limit, std::string_view otherwise = {}) {
    return {std::string(metric), std::string(otherwise), when, std::string(limit)};
}

Gate rise_gate(std::string_view id, std::string_view metric, std::string_view limit, std::string_view says = {},
               std::string_view otherwise = {}) {
    constexpr std::string_view k_usual = "`{metric}` increased by {rise} ms ({before} -> {after}, limit {limit})";
    return {std::string(id),
            {condition(metric, When::rises_over, limit, otherwise)},
            {},
            std::string(says.empty() ? k_usual : says)};
}

// Gates on one bucket that must not grow, or has to shrink.
void add_bucket_gates(std::vector<Gate>& gates) {
    gates.push_back(rise_gate("while", "while_ms", "max_while_increase_ms"));
    gates.push_back({"conditional",
                     {condition("conditional_ms", When::new_bucket, "new_conditional_ms")},
                     {},
                     "`{metric}` became a new large bucket: {before} -> {after} (limit {limit})"});
    gates.push_back(rise_gate("dispatch-shard", "dispatch_shard_shell_delta_ms", "max_dispatch_shard_shell_increase_ms",
                              {}, "xprof_dispatch_shard_shell_delta_ms"));
    gates.push_back(rise_gate("ad-wrapper", "ad_wrapper_shell_delta_ms", "max_ad_wrapper_shell_increase_ms", {},
                              "xprof_ad_wrapper_shell_delta_ms"));
    gates.push_back(rise_gate("xprof-idle", "xprof_idle_attributed_ms", "max_xprof_idle_increase_ms"));
    gates.push_back({"xprof-dispatch-shard",
                     {condition("xprof_dispatch_shard_shell_delta_ms", When::drops_less_than,
                                "min_xprof_dispatch_shard_shell_drop_ms")},
                     {"branch-core sharding envelope"},
                     "matched xprof `dispatch_shard_shell_delta_ms` did not improve materially ({before} -> {after}, "
                     "least drop {limit}): the local delta is a prefilter only"});
    gates.push_back(rise_gate(
        "xprof-ad-wrapper", "xprof_ad_wrapper_shell_delta_ms", "max_xprof_ad_wrapper_shell_increase_ms",
        "matched xprof `ad_wrapper_shell_delta_ms` increased by {rise} ms ({before} -> {after}, limit {limit})"));
    gates.push_back(rise_gate("train-path", "train_path_budget_ms", "max_train_path_budget_increase_ms"));
}

// Gates on the step as a whole: it has to follow what its parts gained.
void add_step_gates(std::vector<Gate>& gates) {
    const GateCondition train = condition("train_path_budget_ms", When::drops_by, "min_train_path_drop_ms");
    const GateCondition step = condition(k_step, When::drops_less_than, k_margin);
    gates.push_back({"off-critical-path",
                     {train, step},
                     {},
                     "`{metric}` dropped by {drop} ms but `step_duration_ms` by {2.drop} ms: classify as "
                     "off-critical-path or overlap-loss"});
    gates.push_back({"waiting",
                     {step, condition("dispatch_shard_shell_delta_ms", When::drops_less_than,
                                      "min_dispatch_shard_shell_drop_ms", "xprof_dispatch_shard_shell_delta_ms")},
                     {},
                     "`step_duration_ms` dropped by {drop} ms and `{2.metric}` by {2.drop} ms: waiting/serialization "
                     "still dominant"});
    gates.push_back(rise_gate("remainder", "remainder_budget_ms", "max_remainder_budget_increase_ms"));
    gates.push_back(rise_gate("interaction", "interaction_remainder_ms", "max_remainder_budget_increase_ms"));
    gates.push_back(rise_gate("hybrid-generic", "hybrid_generic_shell_delta_budget_ms",
                              "max_decoder_layer_shell_budget_increase_ms"));
    gates.push_back(
        {"namespace-only",
         {train, step,
          condition("hybrid_generic_shell_delta_budget_ms", When::drops_less_than, "min_decoder_layer_shell_drop_ms")},
         {},
         "`{metric}` dropped by {drop} ms, `step_duration_ms` by {2.drop} ms and `{3.metric}` by {3.drop} "
         "ms: namespace-only / renamed-bucket progress"});
}

struct Sides {
    std::string metric;
    double before = 0.0, after = 0.0, limit = 0.0;
};

const double* number_in(const MetricMap& metrics, std::string_view name) {
    const auto it = metrics.find(name);
    return it == metrics.end() ? nullptr : &it->second;
}

// The two numbers of a condition, both from the same source; otherwise the metric that is missing.
std::optional<Sides> sides_of(const GateCondition& c, const PerfPolicy& policy, const MetricMap& champion,
                              const MetricMap& candidate, std::string& lack) {
    for (const std::string& name : {c.metric, c.otherwise}) {
        if (name.empty()) continue;
        const double* before = number_in(champion, name);
        const double* after = number_in(candidate, name);
        const auto limit = policy.limits.find(c.limit);
        if (after == nullptr || limit == policy.limits.end()) continue;
        if (before == nullptr && c.when != When::new_bucket) continue;
        return Sides{name, before == nullptr ? 0.0 : *before, *after, limit->second};
    }
    lack = c.metric;
    return std::nullopt;
}

bool holds(When when, const Sides& s) {
    switch (when) {
        case When::rises_over: return s.after - s.before > s.limit;
        case When::drops_less_than: return s.before - s.after < s.limit;
        case When::drops_by: return s.before - s.after >= s.limit;
        case When::new_bucket: break;
    }
    return s.after >= s.limit && s.after - s.before > s.limit;
}

std::string number_text(double value) { return fmt::format("{:.3f}", value); }

std::string filled(std::string_view says, const std::vector<Sides>& sides) {
    std::string out;
    while (!says.empty()) {
        const std::size_t open = says.find('{');
        const std::size_t close = says.find('}', open);
        if (open == std::string_view::npos || close == std::string_view::npos) break;
        out += says.substr(0, open);
        std::string_view word = says.substr(open + 1, close - open - 1);
        says.remove_prefix(close + 1);
        std::size_t which = 0;
        if (const std::size_t dot = word.find('.'); dot != std::string_view::npos) {
            which = static_cast<std::size_t>(text::parse_int(word.substr(0, dot)).value_or(1)) - 1;
            word.remove_prefix(dot + 1);
        }
        const Sides& s = sides[std::min(which, sides.size() - 1)];
        out += word == "metric"   ? s.metric
               : word == "before" ? number_text(s.before)
               : word == "after"  ? number_text(s.after)
               : word == "rise"   ? number_text(s.after - s.before)
               : word == "drop"   ? number_text(s.before - s.after)
               : word == "limit"  ? number_text(s.limit)
                                  : "{" + std::string(word) + "}";
    }
    return out.append(says);
}

GateResult evaluate_gate(const Gate& gate, const PerfPolicy& policy, const MetricMap& champion,
                         const MetricMap& candidate, std::string_view change_class) {
    GateResult result;
    result.id = gate.id;
    result.kind = GateResult::Kind::skip;
    if (!gate.classes.empty() &&
        std::find(gate.classes.begin(), gate.classes.end(), change_class) == gate.classes.end()) {
        result.reason = "only for changes of class " + text::join(gate.classes, ", ");
        return result;
    }
    std::vector<Sides> sides;
    std::string lack;
    for (const GateCondition& c : gate.all) {
        auto both = sides_of(c, policy, champion, candidate, lack);
        if (!both) {
            result.reason = "no measured `" + lack + "` of both sides";
            return result;
        }
        sides.push_back(std::move(*both));
    }
    bool fires = !sides.empty();
    for (std::size_t i = 0; i < sides.size(); ++i) {
        const Sides& s = sides[i];
        if (!holds(gate.all[i].when, s)) fires = false;
        result.numbers += fmt::format("{}{} {:.3f} -> {:.3f}, limit {:.3f}", i == 0 ? "" : "; ", s.metric, s.before,
                                      s.after, s.limit);
    }
    result.kind = fires ? GateResult::Kind::fail : GateResult::Kind::pass;
    if (fires) result.reason = filled(gate.says, sides);
    return result;
}

}  // namespace

std::string_view to_text(When when) {
    constexpr std::array<std::string_view, 4> k_when_names = {"rises-over", "drops-less-than", "drops-by",
                                                              "new-bucket"};
    return k_when_names[static_cast<std::size_t>(when)];
}

std::optional<When> parse_when(std::string_view text) {
    for (const When when : {When::rises_over, When::drops_less_than, When::drops_by, When::new_bucket}) {
        if (to_text(when) == text) return when;
    }
    return std::nullopt;
}

std::string_view to_text(Hold hold) {
    return hold == Hold::keep ? "keep" : hold == Hold::refuse ? "refuse" : "automatic";
}

std::string_view to_text(GateResult::Kind kind) {
    return kind == GateResult::Kind::pass ? "pass" : kind == GateResult::Kind::fail ? "fail" : "skip";
}

PerfPolicy default_policy() {
    PerfPolicy policy;
    policy.effective_classes = {"CE backend"};
    for (const LimitOption& limit : k_default_limits) {
        policy.limits[std::string(limit.limit)] = text::parse_double(limit.usual).value_or(0.0);
    }
    add_bucket_gates(policy.gates);
    add_step_gates(policy.gates);
    return policy;
}

std::span<const LimitOption> limit_options() { return k_default_limits; }

std::vector<GateResult> evaluate_gates(const PerfPolicy& policy, const MetricMap& champion, const MetricMap& candidate,
                                       std::string_view change_class) {
    std::vector<GateResult> results;
    results.reserve(policy.gates.size());
    for (const Gate& gate : policy.gates) {
        results.push_back(evaluate_gate(gate, policy, champion, candidate, change_class));
    }
    return results;
}

void derive_budgets(MetricMap& metrics, std::optional<double> upper_bound_step_ms) {
    const double* step = number_in(metrics, k_step);
    const double* train = number_in(metrics, "train_path_budget_ms");
    if (step != nullptr && train != nullptr) metrics["remainder_budget_ms"] = *step - *train;
    if (step == nullptr || !upper_bound_step_ms) return;
    const double gap = *step - *upper_bound_step_ms;
    metrics["upper_bound_gap_ms"] = gap;
    const double* generic = number_in(metrics, "hybrid_generic_shell_delta_budget_ms");
    if (gap > 0.0) {
        if (train != nullptr) metrics["gap_explained_by_train_path"] = *train / gap;
        if (const double* shell = number_in(metrics, "decoder_layer_shell_budget_ms")) {
            metrics["gap_explained_by_decoder_layer_shell"] = *shell / gap;
        }
        if (generic != nullptr) metrics["gap_explained_by_hybrid_generic_shell_delta"] = *generic / gap;
    }
    if (train != nullptr && generic != nullptr) metrics["interaction_remainder_ms"] = gap - *train - *generic;
}

namespace {

constexpr std::string_view k_policy_schema = "gdnctl.policy/1";

// A value and how a message names it: "policy.json: gates[2].all[0].when". `set`: where a configuration file sets it.
struct Field {
    const Json& value;
    std::string path;
    const ConfigValue* set = nullptr;

    // "gdnctl.toml:4: "; empty for a policy file.
    std::string origin() const { return set == nullptr ? std::string() : set->origin.text() + ": "; }
    tl::unexpected<Error> wrong(std::string_view wanted) const {
        return fail(ErrorKind::config, origin() + path + " must be " + std::string(wanted));
    }
    Field at(const std::string& key) const {
        const ConfigTable* table = set == nullptr ? nullptr : set->as_table();
        return {value.at(key), path + (path.ends_with(": ") ? "" : ".") + key,
                table == nullptr ? nullptr : &table->find(key)->second};
    }
    Field at(std::size_t index) const {
        const ConfigArray* array = set == nullptr ? nullptr : set->as_array();
        return {value.at(index), path + "[" + std::to_string(index) + "]",
                array == nullptr ? nullptr : &(*array)[index]};
    }
    bool has(const char* key) const { return value.contains(key); }

    Status only(std::span<const std::string_view> known) const {
        if (!value.is_object()) return wrong("an object");
        for (const auto& [key, unused] : value.items()) {
            if (std::find(known.begin(), known.end(), key) != known.end()) continue;
            const std::vector<std::string> names(known.begin(), known.end());
            const auto near = text::nearest(key, names);
            const Field unknown = at(key);
            return fail(ErrorKind::config, unknown.origin() + "unknown key " + unknown.path,
                        near ? "did you mean `" + *near + "`?" : "known keys: " + text::join(names, ", "));
        }
        return {};
    }
    Status read(std::string& into) const {
        if (!value.is_string()) return wrong("a string");
        into = value.get<std::string>();
        return {};
    }
    Status read(double& into) const {
        if (!value.is_number() || value.get<double>() < 0.0) return wrong("a number, 0 or more");
        into = value.get<double>();
        return {};
    }
    Status read(std::vector<std::string>& into) const {
        if (!value.is_array()) return wrong("a list of strings");
        into.clear();
        for (std::size_t i = 0; i < value.size(); ++i) GDNCTL_TRY(at(i).read(into.emplace_back()));
        return {};
    }
    template <class T>
    Status read_if(const char* key, T& into) const {
        return has(key) ? at(key).read(into) : Status();
    }
};

Status read_condition(const Field& field, GateCondition& into) {
    constexpr std::array<std::string_view, 4> k_keys = {"metric", "otherwise", "when", "limit"};
    GDNCTL_TRY(field.only(k_keys));
    for (const char* key : {"metric", "when", "limit"}) {
        if (!field.has(key)) return fail(ErrorKind::config, field.origin() + field.path + " lacks `" + key + "`");
    }
    GDNCTL_TRY(field.at("metric").read(into.metric));
    GDNCTL_TRY(field.read_if("otherwise", into.otherwise));
    GDNCTL_TRY(field.at("limit").read(into.limit));
    std::string when;
    GDNCTL_TRY(field.at("when").read(when));
    const auto known = parse_when(when);
    if (!known) return field.at("when").wrong("rises-over, drops-less-than, drops-by or new-bucket");
    into.when = *known;
    return {};
}

bool is_gate_id(std::string_view id) {
    return !id.empty() && id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

Status read_gate(const Field& field, Gate& into) {
    constexpr std::array<std::string_view, 4> k_keys = {"id", "all", "classes", "says"};
    GDNCTL_TRY(field.only(k_keys));
    for (const char* key : {"id", "all", "says"}) {
        if (!field.has(key)) return fail(ErrorKind::config, field.origin() + field.path + " lacks `" + key + "`");
    }
    GDNCTL_TRY(field.at("id").read(into.id));
    if (!is_gate_id(into.id)) return field.at("id").wrong("made of a-z, 0-9 and `-`");
    GDNCTL_TRY(field.read_if("classes", into.classes));
    GDNCTL_TRY(field.at("says").read(into.says));
    const Field all = field.at("all");
    if (!all.value.is_array() || all.value.empty()) return all.wrong("a list of conditions, at least one");
    for (std::size_t i = 0; i < all.value.size(); ++i) {
        GDNCTL_TRY(read_condition(all.at(i), into.all.emplace_back()));
    }
    return {};
}

Status read_gates(const Field& field, std::vector<Gate>& into) {
    if (!field.value.is_array()) return field.wrong("a list");
    into.clear();
    for (std::size_t i = 0; i < field.value.size(); ++i) {
        Gate gate;
        GDNCTL_TRY(read_gate(field.at(i), gate));
        const bool twice = std::any_of(into.begin(), into.end(), [&](const Gate& g) { return g.id == gate.id; });
        if (twice) {
            const Field second = field.at(i);
            return fail(ErrorKind::config,
                        second.origin() + second.path + ": there is a gate `" + gate.id + "` already");
        }
        into.push_back(std::move(gate));
    }
    return {};
}

Status read_limits(const Field& field, PerfPolicy& policy) {
    if (!field.value.is_object()) return field.wrong("an object");
    for (const auto& [name, unused] : field.value.items()) GDNCTL_TRY(field.at(name).read(policy.limits[name]));
    return {};
}

// A misspelt limit would leave the gate that it is for at its default.
Status check_known_limits(const Field& field, const PerfPolicy& base, const std::vector<Gate>& gates) {
    std::vector<std::string_view> names;
    for (const auto& [name, unused] : base.limits) names.emplace_back(name);
    for (const Gate& gate : gates) {
        for (const GateCondition& c : gate.all) names.emplace_back(c.limit);
    }
    return field.only(names);
}

Status check_limits(const PerfPolicy& policy, const Field& root, std::string_view name) {
    for (const Gate& gate : policy.gates) {
        for (const GateCondition& c : gate.all) {
            if (policy.limits.contains(c.limit)) continue;
            std::vector<std::string> names;
            for (const auto& [limit, unused] : policy.limits) names.push_back(limit);
            const auto near = text::nearest(c.limit, names);
            return fail(ErrorKind::config,
                        (root.has("gates") ? root.at("gates") : root).origin() + std::string(name) + ": gate `" +
                            gate.id + "` refers to the limit `" + c.limit + "`, which is not in `limits`",
                        near ? "did you mean `" + *near + "`?" : "");
        }
    }
    return {};
}

Result<PerfPolicy> lay_over(const Field& root, std::string_view name, const PerfPolicy& base) {
    PerfPolicy policy = base;
    constexpr std::array<std::string_view, 10> k_keys = {"schema",
                                                         "name",
                                                         "min_improvement_pct",
                                                         "max_regression_pct",
                                                         "override_pct",
                                                         "noise_share",
                                                         "hold",
                                                         "effective_classes",
                                                         "limits",
                                                         "gates"};
    GDNCTL_TRY(root.only(k_keys));
    GDNCTL_TRY(root.read_if("name", policy.name));
    GDNCTL_TRY(root.read_if("min_improvement_pct", policy.min_improvement_pct));
    GDNCTL_TRY(root.read_if("max_regression_pct", policy.max_regression_pct));
    GDNCTL_TRY(root.read_if("override_pct", policy.override_pct));
    GDNCTL_TRY(root.read_if("noise_share", policy.noise_share));
    GDNCTL_TRY(root.read_if("effective_classes", policy.effective_classes));
    if (root.has("hold")) {
        std::string word;
        GDNCTL_TRY(root.at("hold").read(word));
        constexpr std::array k_holds = {Hold::automatic, Hold::keep, Hold::refuse};
        const auto hold = std::find_if(k_holds.begin(), k_holds.end(), [&](Hold h) { return to_text(h) == word; });
        if (hold == k_holds.end()) return root.at("hold").wrong("automatic, keep or refuse");
        policy.hold = *hold;
    }
    if (root.has("limits")) GDNCTL_TRY(read_limits(root.at("limits"), policy));
    if (root.has("gates")) GDNCTL_TRY(read_gates(root.at("gates"), policy.gates));
    GDNCTL_TRY(check_limits(policy, root, name));
    if (root.has("limits")) GDNCTL_TRY(check_known_limits(root.at("limits"), base, policy.gates));
    return policy;
}

Json json_of(const ConfigValue& value);

Json json_of(const ConfigTable& table) {
    Json out = Json::object();
    for (const auto& [key, value] : table) out[key] = json_of(value);
    return out;
}

Json json_of(const ConfigValue& value) {
    if (const ConfigTable* table = value.as_table()) return json_of(*table);
    if (const ConfigArray* array = value.as_array()) {
        Json out = Json::array();
        for (const ConfigValue& item : *array) out.push_back(json_of(item));
        return out;
    }
    if (const std::string* word = value.as_string()) return *word;
    if (const auto* truth = std::get_if<bool>(&value.value)) return *truth;
    if (const auto* whole = std::get_if<std::int64_t>(&value.value)) return *whole;
    return std::get<double>(value.value);
}

}  // namespace

Json policy_json(const PerfPolicy& policy) {
    Json out;
    out["schema"] = k_policy_schema;
    out["name"] = policy.name;
    out["min_improvement_pct"] = policy.min_improvement_pct;
    out["max_regression_pct"] = policy.max_regression_pct;
    out["override_pct"] = policy.override_pct;
    out["noise_share"] = policy.noise_share;
    out["hold"] = to_text(policy.hold);
    out["effective_classes"] = policy.effective_classes;
    out["limits"] = Json::object();
    for (const auto& [name, value] : policy.limits) out["limits"][name] = value;
    out["gates"] = Json::array();
    for (const Gate& gate : policy.gates) {
        Json all = Json::array();
        for (const GateCondition& c : gate.all) {
            Json one = {{"metric", c.metric}};
            if (!c.otherwise.empty()) one["otherwise"] = c.otherwise;
            one["when"] = to_text(c.when);
            one["limit"] = c.limit;
            all.push_back(std::move(one));
        }
        out["gates"].push_back({{"id", gate.id}, {"all", all}, {"classes", gate.classes}, {"says", gate.says}});
    }
    return out;
}

Result<PerfPolicy> parse_policy(std::string_view text, std::string_view name, const PerfPolicy& base) {
    auto parsed = parse_json(text, name);
    if (!parsed) return fail(ErrorKind::config, parsed.error().text());
    const Field root{*parsed, std::string(name) + ": "};
    if (!parsed->is_object()) return fail(ErrorKind::config, std::string(name) + ": a policy is a JSON object");
    if (parsed->value("schema", Json()) != Json(k_policy_schema)) {
        return fail(ErrorKind::config,
                    std::string(name) + ": `schema` must be \"" + std::string(k_policy_schema) + "\"",
                    "`gdnctl policy show` prints one to start from");
    }
    return lay_over(root, name, base);
}

Result<PerfPolicy> policy_of_target(const Target& target, const PerfPolicy& base) {
    if (target.gates.empty()) return base;
    const std::string name = "targets." + target.name + ".gates";
    const ConfigValue table{target.gates, target.gates.begin()->second.origin};
    const Json values = json_of(table);
    return lay_over({values, name, &table}, name, base);
}

Status check_gates(const Target& target) {
    const auto policy = policy_of_target(target, default_policy());
    return policy ? Status() : Status(tl::unexpected(policy.error()));
}

Result<PerfPolicy> read_policy_file(const std::filesystem::path& path, const PerfPolicy& base) {
    GDNCTL_TRY_ASSIGN(const std::string text, read_file(path));
    return parse_policy(text, path.string(), base);
}

}  // namespace gdnctl::loop
