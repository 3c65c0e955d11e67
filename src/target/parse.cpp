#include <array>
#include <filesystem>
#include <span>

#include "core/text.h"
#include "target/builtin.h"

namespace gdnctl::detail {

namespace {

// "targets.NAME.key" and where it was set, for messages.
struct Place {
    std::string path;
    Place at(std::string_view key) const { return {path + "." + std::string(key)}; }
};

tl::unexpected<Error> wrong(const Place& place, const ConfigValue& value, std::string_view wanted) {
    return fail(ErrorKind::config, value.origin.text() + ": " + place.path + " must be " + std::string(wanted));
}

Status check_keys(const Place& place, const ConfigTable& table, std::span<const std::string_view> known) {
    for (const auto& [key, value] : table) {
        if (std::find(known.begin(), known.end(), key) != known.end()) continue;
        const std::vector<std::string> names(known.begin(), known.end());
        const auto near = text::nearest(key, names);
        return fail(ErrorKind::config, value.origin.text() + ": unknown key " + place.at(key).path,
                    near ? "did you mean `" + *near + "`?" : "known keys: " + text::join(names, ", "));
    }
    return {};
}

const ConfigValue* find(const ConfigTable& table, std::string_view key) {
    const auto it = table.find(key);
    return it == table.end() ? nullptr : &it->second;
}

Status read_string(const Place& place, const ConfigTable& table, std::string_view key, std::string& into) {
    const ConfigValue* value = find(table, key);
    if (value == nullptr) return {};
    const std::string* s = value->as_string();
    if (s == nullptr) return wrong(place.at(key), *value, "a string");
    into = *s;
    return {};
}

Result<std::vector<std::string>> strings_of(const Place& place, const ConfigValue& value) {
    std::vector<std::string> out;
    if (const std::string* one = value.as_string()) {
        out.push_back(*one);
        return out;
    }
    const ConfigArray* array = value.as_array();
    if (array == nullptr) return wrong(place, value, "a string or a list of strings");
    for (const ConfigValue& item : *array) {
        const std::string* s = item.as_string();
        if (s == nullptr) return wrong(place, item, "a list of strings");
        out.push_back(*s);
    }
    return out;
}

Status read_strings(const Place& place, const ConfigTable& table, std::string_view key,
                    std::vector<std::string>& into) {
    const ConfigValue* value = find(table, key);
    if (value == nullptr) return {};
    GDNCTL_TRY_ASSIGN(into, strings_of(place.at(key), *value));
    return {};
}

Status read_count(const Place& place, const ConfigTable& table, std::string_view key,
                  std::optional<std::int64_t>& into) {
    const ConfigValue* value = find(table, key);
    if (value == nullptr) return {};
    const auto* number = std::get_if<std::int64_t>(&value->value);
    if (number == nullptr || *number < 0) return wrong(place.at(key), *value, "a whole number, 0 or more");
    into = *number;
    return {};
}

Result<const ConfigTable*> table_at(const Place& place, const ConfigTable& table, std::string_view key) {
    const ConfigValue* value = find(table, key);
    if (value == nullptr) return nullptr;
    const ConfigTable* inner = value->as_table();
    if (inner == nullptr) return wrong(place.at(key), *value, "a table");
    return inner;
}

Status read_env(const Place& place, const ConfigTable& table, EnvList& into) {
    GDNCTL_TRY_ASSIGN(const ConfigTable* env, table_at(place, table, "env"));
    if (env == nullptr) return {};
    into.clear();
    for (const auto& [name, value] : *env) {
        const std::string* s = value.as_string();
        if (s == nullptr) return wrong(place.at("env").at(name), value, "a string");
        into.emplace_back(name, *s);
    }
    return {};
}

Status read_resources(const Place& place, const ConfigTable& table, std::map<std::string, double>& into) {
    GDNCTL_TRY_ASSIGN(const ConfigTable* resources, table_at(place, table, "resources"));
    if (resources == nullptr) return {};
    into.clear();
    for (const auto& [name, value] : *resources) {
        const auto* whole = std::get_if<std::int64_t>(&value.value);
        const auto* real = std::get_if<double>(&value.value);
        const double amount = whole != nullptr ? static_cast<double>(*whole) : real != nullptr ? *real : -1.0;
        if (!(amount >= 0)) return wrong(place.at("resources").at(name), value, "a number, 0 or more");
        into.emplace(name, amount);
    }
    return {};
}

// A job runs in a copy of the repository, so a folder outside of it does not exist there.
Status read_workdir(const Place& place, const ConfigTable& table, std::string& into) {
    GDNCTL_TRY(read_string(place, table, "workdir", into));
    const auto path = std::filesystem::path(into).lexically_normal();
    const bool leads_out = path.is_absolute() || (!path.empty() && *path.begin() == "..");
    if (!leads_out) return {};
    return wrong(place.at("workdir"), *find(table, "workdir"), "a folder of the repository, relative to its root");
}

constexpr std::array<std::string_view, 6> k_job_keys = {"argv", "env", "workdir", "resources", "timeout_s", "evidence"};
constexpr std::array<std::string_view, 2> k_evidence_keys = {"passed_min", "skipped_max"};

Status read_job(const Place& outer, const ConfigTable& target, std::string_view key, std::optional<TargetJob>& into,
                bool& own_argv) {
    const ConfigValue* value = find(target, key);
    if (value == nullptr) return {};
    const Place place = outer.at(key);
    const ConfigTable* table = value->as_table();
    // A command of its own replaces the built-in job completely.
    const bool replaced = table == nullptr || find(*table, "argv") != nullptr;
    TargetJob job = replaced ? TargetJob{} : into.value_or(TargetJob{});
    if (table == nullptr) {
        GDNCTL_TRY_ASSIGN(job.argv, strings_of(place, *value));
    } else {
        GDNCTL_TRY(check_keys(place, *table, k_job_keys));
        GDNCTL_TRY(read_strings(place, *table, "argv", job.argv));
        GDNCTL_TRY(read_env(place, *table, job.env));
        GDNCTL_TRY(read_workdir(place, *table, job.workdir));
        GDNCTL_TRY(read_resources(place, *table, job.resources));
        GDNCTL_TRY(read_count(place, *table, "timeout_s", job.timeout_s));
        GDNCTL_TRY_ASSIGN(const ConfigTable* evidence, table_at(place, *table, "evidence"));
        if (evidence != nullptr) {
            const Place at = place.at("evidence");
            GDNCTL_TRY(check_keys(at, *evidence, k_evidence_keys));
            job.evidence = {};
            GDNCTL_TRY(read_count(at, *evidence, "passed_min", job.evidence.passed_min));
            GDNCTL_TRY(read_count(at, *evidence, "skipped_max", job.evidence.skipped_max));
        }
    }
    if (replaced) {
        if (job.argv.empty() || job.argv.front().empty()) return wrong(place, *value, "a command with its arguments");
        if (value->as_string() != nullptr && job.argv.front().find_first_of(" \t\n") != std::string::npos) {
            return wrong(place, *value, R"(a list of words, as ["sh", "-c", "COMMAND LINE"])");
        }
        own_argv = true;
    }
    into = std::move(job);
    return {};
}

constexpr std::array<std::string_view, 4> k_metric_keys = {"name", "better", "unit", "from"};

Status read_metric(const Place& outer, const ConfigTable& target, std::optional<TargetMetric>& into) {
    GDNCTL_TRY_ASSIGN(const ConfigTable* table, table_at(outer, target, "metric"));
    if (table == nullptr) return {};
    const Place place = outer.at("metric");
    GDNCTL_TRY(check_keys(place, *table, k_metric_keys));
    TargetMetric metric = into.value_or(TargetMetric{});
    std::string better = metric.lower_is_better ? "lower" : "higher";
    GDNCTL_TRY(read_string(place, *table, "name", metric.name));
    GDNCTL_TRY(read_string(place, *table, "unit", metric.unit));
    GDNCTL_TRY(read_string(place, *table, "from", metric.from));
    GDNCTL_TRY(read_string(place, *table, "better", better));
    const ConfigValue& whole = *find(target, "metric");
    if (better != "lower" && better != "higher") return wrong(place.at("better"), whole, "\"lower\" or \"higher\"");
    if (metric.name.empty()) return wrong(place.at("name"), whole, "given");
    if (!metric.from.starts_with("json:/") && !metric.from.starts_with("regex:")) {
        return wrong(place.at("from"), whole, "\"json:/pointer\" or \"regex:expression\"");
    }
    metric.lower_is_better = better == "lower";
    into = std::move(metric);
    return {};
}

constexpr std::array<std::string_view, 14> k_target_keys = {"root_marker", "kernel", "protected", "log",    "prompt",
                                                            "presets",     "test",   "profile",   "metric", "validate",
                                                            "torch_index", "floor",  "kernel_op", "gates"};

Status read_floor(const Place& place, const ConfigTable& table, std::string& into) {
    GDNCTL_TRY(read_string(place, table, "floor", into));
    if (into.empty() || into.starts_with("json:/")) return {};
    return wrong(place.at("floor"), *find(table, "floor"), "\"json:/pointer\"");
}

}  // namespace

Result<Target> parse_target(Target base, const ConfigTable& table) {
    const Place place{"targets." + base.name};
    GDNCTL_TRY(check_keys(place, table, k_target_keys));
    GDNCTL_TRY(read_string(place, table, "root_marker", base.root_marker));
    GDNCTL_TRY(read_strings(place, table, "kernel", base.kernel));
    GDNCTL_TRY(read_strings(place, table, "protected", base.protected_paths));
    GDNCTL_TRY(read_string(place, table, "log", base.log));
    GDNCTL_TRY(read_string(place, table, "prompt", base.prompt));
    GDNCTL_TRY(read_strings(place, table, "presets", base.presets));
    GDNCTL_TRY(read_strings(place, table, "validate", base.validate));
    GDNCTL_TRY(read_string(place, table, "torch_index", base.torch_index));
    GDNCTL_TRY(read_floor(place, table, base.floor));
    GDNCTL_TRY(read_string(place, table, "kernel_op", base.kernel_op));
    GDNCTL_TRY(read_metric(place, table, base.metric));
    GDNCTL_TRY_ASSIGN(const ConfigTable* gates, table_at(place, table, "gates"));
    if (gates != nullptr) base.gates = *gates;

    // A command of its own replaces the generated ones; all jobs of the target then run as written.
    bool own_argv = false;
    GDNCTL_TRY(read_job(place, table, "test", base.test, own_argv));
    GDNCTL_TRY(read_job(place, table, "profile", base.profile, own_argv));
    if (own_argv) base.style = TargetStyle::argv;
    if (base.profile && base.style == TargetStyle::argv && base.profile->argv.empty()) base.profile.reset();
    if (!base.test || (base.style == TargetStyle::argv && base.test->argv.empty())) {
        return fail(ErrorKind::config, place.path + " has no test",
                    "add a line such as: test = [\"gdnctl\", \"oracle\", \"verify\", \"gdn\"]");
    }
    return base;
}

}  // namespace gdnctl::detail
