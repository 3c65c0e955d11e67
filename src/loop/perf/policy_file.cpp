#include "loop/perf/policy_file.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "platform/fs.h"

namespace gdnctl::loop {

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
