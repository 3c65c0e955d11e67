#include "trace/report/budgets.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/line_regex.h"
#include "core/text.h"

namespace gdnctl::trace {

// Made by CMake from report/marin_hybrid.json.
extern const char* const k_marin_hybrid_rules;

namespace {

Error bad_rule(std::string what) {
    return {ErrorKind::bad_input,
            "the budget rules are wrong: " + std::move(what),
            "docs/traces.md describes gdnctl.trace-rules/1",
            {}};
}

Result<LineRegex> regex_of(const Json& holder, std::string_view key) {
    const std::string pattern = json::text(holder, key);
    auto regex = LineRegex::compile(pattern, key);
    if (!regex) return tl::unexpected(bad_rule(regex.error().message));
    return regex;
}

Result<std::vector<LineRegex>> regexes_of(const Json& holder, std::string_view key) {
    std::vector<LineRegex> all;
    for (const std::string& pattern : json::texts(holder, key)) {
        auto regex = LineRegex::compile(pattern, key);
        if (!regex) return tl::unexpected(bad_rule(regex.error().message));
        all.push_back(std::move(*regex));
    }
    return all;
}

struct Fold {
    LineRegex match, unless;
    bool has_unless = false;
    std::string to;
};

struct Bucket {
    std::string key, also, category;
    std::vector<std::string> contains, without;
    bool of_tf_op = false;

    bool has(const LabelledTime& op, const std::string& label) const {
        if (!category.empty()) return op.category == category;
        const std::string& text = of_tf_op ? op.tf_op : label;
        const auto in = [&](const std::string& part) { return text.find(part) != std::string::npos; };
        return std::all_of(contains.begin(), contains.end(), in) && std::none_of(without.begin(), without.end(), in);
    }
};

struct Family {
    std::string key;
    std::vector<std::pair<std::vector<LineRegex>, std::vector<LineRegex>>> any;  // all of, none of

    bool has(const std::string& label) const {
        return std::any_of(any.begin(), any.end(), [&](const auto& one) {
            const auto in = [&](const LineRegex& regex) { return regex.matches(label); };
            return std::all_of(one.first.begin(), one.first.end(), in) &&
                   std::none_of(one.second.begin(), one.second.end(), in);
        });
    }
};

class Rules {
public:
    static Result<Rules> read(const Json& given);

    Budgets budgets(const std::vector<LabelledTime>& ops, double step_ms) const;
    Budgets deltas(const std::map<std::string, double>& before, const std::map<std::string, double>& after) const;
    // Time of each label that belongs to a shell and to no bucket.
    std::map<std::string, double> shell_labels(const std::vector<LabelledTime>& ops) const;

private:
    Status read_label(const Json& json);
    Status read_buckets(const Json& json);
    Status read_shells(const Json& json);
    Status read_families(const Json& json);
    std::string label_of(const std::string& tf_op) const;
    void add_sums(Budgets& budgets) const;

    std::vector<std::string> m_cuts;
    std::vector<Fold> m_folds;
    std::vector<Bucket> m_buckets;
    std::vector<std::pair<std::string, std::vector<std::string>>> m_sums;
    std::string m_rest, m_rest_from, m_rest_less, m_total;
    std::optional<LineRegex> m_shell;
    std::vector<std::pair<std::string, LineRegex>> m_shells;
    std::vector<Family> m_families;
};

Status Rules::read_label(const Json& json) {
    const Json& label = json::field(json, "label");
    m_cuts = json::texts(label, "cut");
    const Json* folds = json::array(label, "fold");
    for (std::size_t i = 0; folds != nullptr && i < folds->size(); ++i) {
        const Json& one = (*folds)[i];
        GDNCTL_TRY_ASSIGN(LineRegex match, regex_of(one, "match"));
        GDNCTL_TRY_ASSIGN(LineRegex unless, regex_of(one, "unless"));
        m_folds.push_back(
            {std::move(match), std::move(unless), one.is_object() && one.contains("unless"), json::text(one, "to")});
    }
    return {};
}

Status Rules::read_buckets(const Json& json) {
    const Json* buckets = json::array(json, "buckets");
    if (buckets == nullptr) return tl::unexpected(bad_rule("there is no list 'buckets'"));
    for (const Json& one : *buckets) {
        Bucket bucket{json::text(one, "key"),       json::text(one, "also"),          json::text(one, "category"),
                      json::texts(one, "contains"), json::texts(one, "not_contains"), json::text(one, "of") == "tf_op"};
        if (bucket.key.empty()) return tl::unexpected(bad_rule("a bucket has no 'key'"));
        if (bucket.category.empty() && bucket.contains.empty()) {
            return tl::unexpected(
                bad_rule(fmt::format("bucket '{}' has neither 'contains' nor 'category'", bucket.key)));
        }
        m_buckets.push_back(std::move(bucket));
    }
    if (const Json* sums = json::object(json, "sums")) {
        for (const auto& [key, value] : sums->items()) m_sums.emplace_back(key, json::texts(*sums, key));
    }
    const Json& rest = json::field(json, "rest");
    m_rest = json::text(rest, "key");
    m_rest_from = json::text(rest, "from");
    m_rest_less = json::text(rest, "less");
    return {};
}

Status Rules::read_shells(const Json& json) {
    const Json* shells = json::object(json, "shells");
    if (shells == nullptr) return {};
    GDNCTL_TRY_ASSIGN(m_shell, regex_of(*shells, "of"));
    if (const Json* keys = json::object(*shells, "keys")) {
        for (const auto& [key, value] : keys->items()) {
            GDNCTL_TRY_ASSIGN(LineRegex regex, regex_of(*keys, key));
            m_shells.emplace_back(key, std::move(regex));
        }
    }
    return {};
}

Status Rules::read_families(const Json& json) {
    const Json& deltas = json::field(json, "deltas");
    m_total = json::text(deltas, "total");
    const Json* families = json::array(deltas, "families");
    for (std::size_t i = 0; families != nullptr && i < families->size(); ++i) {
        Family family{json::text((*families)[i], "key"), {}};
        if (family.key.empty()) return tl::unexpected(bad_rule("a family has no 'key'"));
        const Json* any = json::array((*families)[i], "any");
        for (std::size_t k = 0; any != nullptr && k < any->size(); ++k) {
            GDNCTL_TRY_ASSIGN(auto all, regexes_of((*any)[k], "all"));
            GDNCTL_TRY_ASSIGN(auto none, regexes_of((*any)[k], "none"));
            family.any.emplace_back(std::move(all), std::move(none));
        }
        m_families.push_back(std::move(family));
    }
    return {};
}

Result<Rules> Rules::read(const Json& given) {
    Json built_in;
    if (given.is_null()) {
        GDNCTL_TRY_ASSIGN(built_in, parse_json(k_marin_hybrid_rules, "built-in rules"));
    } else if (json::text(given, "schema") != "gdnctl.trace-rules/1") {
        return tl::unexpected(bad_rule("'schema' is not gdnctl.trace-rules/1"));
    }
    const Json& json = given.is_null() ? built_in : given;
    Rules rules;
    GDNCTL_TRY(rules.read_label(json));
    GDNCTL_TRY(rules.read_buckets(json));
    GDNCTL_TRY(rules.read_shells(json));
    GDNCTL_TRY(rules.read_families(json));
    return rules;
}

// The part of a tf_op that names it in the model: from the first cut that it contains, or behind it for the last cut.
std::string Rules::label_of(const std::string& tf_op) const {
    std::string label = tf_op;
    for (std::size_t i = 0; i < m_cuts.size(); ++i) {
        const std::size_t at = tf_op.find(m_cuts[i]);
        if (at == std::string::npos) continue;
        label = tf_op.substr(i + 1 < m_cuts.size() ? at : at + m_cuts[i].size());
        break;
    }
    for (const Fold& fold : m_folds) {
        const auto group = fold.match.last_match(label);
        if (!group || (fold.has_unless && fold.unless.matches(label))) continue;
        std::string to = fold.to;
        if (const std::size_t at = to.find("\\1"); at != std::string::npos) to.replace(at, 2, *group);
        label = to;
    }
    return label;
}

std::map<std::string, double> Rules::shell_labels(const std::vector<LabelledTime>& ops) const {
    std::map<std::string, double> labels;
    for (const LabelledTime& op : ops) {
        const std::string label = label_of(op.tf_op);
        const bool in_bucket = std::any_of(m_buckets.begin(), m_buckets.end(),
                                           [&](const Bucket& bucket) { return bucket.has(op, label); });
        if (!in_bucket && m_shell && m_shell->matches(label)) labels[label] += op.ms;
    }
    return labels;
}

void Rules::add_sums(Budgets& budgets) const {
    for (const auto& [key, parts] : m_sums) {
        double sum = 0;
        bool any = false;
        for (const std::string& part : parts) {
            const auto at = budgets.find(part);
            if (at == budgets.end()) continue;
            any = true;
            sum += at->second;
        }
        if (any) budgets[key] = sum;
    }
    const auto from = budgets.find(m_rest_from), less = budgets.find(m_rest_less);
    if (!m_rest.empty() && from != budgets.end() && less != budgets.end()) {
        budgets[m_rest] = from->second - less->second;
    }
}

Budgets Rules::budgets(const std::vector<LabelledTime>& ops, double step_ms) const {
    Budgets budgets;
    budgets["step_duration_ms"] = step_ms;
    for (const LabelledTime& op : ops) {
        const std::string label = label_of(op.tf_op);
        for (const Bucket& bucket : m_buckets) {
            if (!bucket.has(op, label)) continue;
            budgets[bucket.key] += op.ms;
            if (!bucket.also.empty()) budgets[bucket.also] += op.ms;
        }
    }
    add_sums(budgets);
    for (const auto& [label, time] : shell_labels(ops)) {
        for (const auto& [key, regex] : m_shells) {
            if (regex.matches(label)) budgets[key] += time;
        }
    }
    return budgets;
}

Budgets Rules::deltas(const std::map<std::string, double>& before, const std::map<std::string, double>& after) const {
    Budgets rises;
    for (const auto& [label, time] : after) {
        const auto at = before.find(label);
        const double rise = time - (at == before.end() ? 0 : at->second);
        if (rise <= 0) continue;
        const auto family =
            std::find_if(m_families.begin(), m_families.end(), [&](const Family& one) { return one.has(label); });
        if (family == m_families.end()) continue;
        rises[family->key] += rise;
        if (!m_total.empty()) rises[m_total] += rise;
    }
    return rises;
}

std::vector<LabelledTime> times_of(const Profile& profile) {
    const double steps = static_cast<double>(profile.steps.size()) * static_cast<double>(profile.devices);
    std::vector<LabelledTime> times;
    for (const OpSum& op : profile.ops) {
        if (steps > 0) times.push_back({op.tf_op, op.category, static_cast<double>(op.self_ps) / steps / 1e9});
    }
    return times;
}

}  // namespace

Result<Budgets> budgets_of(const std::vector<LabelledTime>& ops, double step_ms, const Json& rules) {
    GDNCTL_TRY_ASSIGN(const Rules read, Rules::read(rules));
    return read.budgets(ops, step_ms);
}

Result<Budgets> shell_deltas(const std::map<std::string, double>& before, const std::map<std::string, double>& after,
                             const Json& rules) {
    GDNCTL_TRY_ASSIGN(const Rules read, Rules::read(rules));
    return read.deltas(before, after);
}

Result<Budgets> budgets_of(const Profile& profile, const Profile* before, const Json& rules) {
    GDNCTL_TRY_ASSIGN(const Rules read, Rules::read(rules));
    if (profile.steps.empty()) return Budgets{};
    std::vector<Ps> steps = profile.steps;
    std::sort(steps.begin(), steps.end());
    const std::size_t middle = steps.size() / 2;
    const double median = (static_cast<double>(steps[middle]) + static_cast<double>(steps[(steps.size() - 1) / 2])) / 2;
    const std::vector<LabelledTime> times = times_of(profile);
    Budgets budgets = read.budgets(times, median / 1e9);
    if (before != nullptr) budgets.merge(read.deltas(read.shell_labels(times_of(*before)), read.shell_labels(times)));
    return budgets;
}

std::string budget_label(std::string_view key) {
    std::string label(key.substr(0, key.rfind("_ms")));
    if (label.ends_with("_delta")) label += "_budget";
    std::replace(label.begin(), label.end(), '_', ' ');
    if (!label.empty()) label[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(label[0])));
    return label;
}

}  // namespace gdnctl::trace
