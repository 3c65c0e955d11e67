#include <fmt/format.h>

#include "trace/views/format.h"

namespace gdnctl::trace {

Result<std::vector<Rule>> rules_of(const Json& json) {
    const Json* list = json::array(json, "rules");
    const std::string form = R"({"rules":[{"metric":"step.median_ms","max":121.0}]})";
    if (list == nullptr) return fail(ErrorKind::bad_input, "the rules file has no list 'rules'", "write " + form);
    std::vector<Rule> rules;
    for (const Json& one : *list) {
        const std::string where = fmt::format("rule {}", rules.size() + 1);
        const auto metric = json::maybe_text(one, "metric");
        if (!metric) return fail(ErrorKind::bad_input, where + ": no metric", "write " + form);
        for (const auto& [key, value] : one.items()) {
            const bool known = key == "metric" || key == "max" || key == "min" || key == "max_regression_pct";
            if (known && (key == "metric" || value.is_number())) continue;
            return fail(ErrorKind::bad_input,
                        fmt::format("{} ({}): {} '{}'", where, *metric, known ? "no number in" : "unknown key", key),
                        "a rule has a metric, and max, min or max_regression_pct");
        }
        Rule rule{*metric, json::number(one, "max"), json::number(one, "min"), json::number(one, "max_regression_pct")};
        if (!rule.max && !rule.min && !rule.max_regression_pct) {
            return fail(ErrorKind::bad_input, fmt::format("{} ({}): no bound", where, *metric),
                        "a rule has max, min or max_regression_pct");
        }
        rules.push_back(std::move(rule));
    }
    if (rules.empty()) return fail(ErrorKind::bad_input, "the rules file has no rules", "write " + form);
    return rules;
}

namespace {

struct Judged {
    std::string bound;
    double limit = 0;
    bool passed = false;
};

// One bound of a rule against the value, as JSON and as a line for those that fail.
void add_bound(Answer& answer, Json& rows, const Rule& rule, double value, const Judged& judged) {
    rows.push_back({{"metric", rule.metric},
                    {"value", value},
                    {"bound", judged.bound},
                    {"limit", judged.limit},
                    {"passed", judged.passed}});
    if (!judged.passed) answer.exit = ExitCode::check_failed;
    const bool is_min = judged.bound == "min";
    const std::string_view sign = judged.passed ? (is_min ? ">=" : "<=") : (is_min ? "<" : ">");
    const bool from_baseline = judged.bound == "max_regression_pct";
    answer.blocks.front().lines.push_back(fmt::format("{} {} {:.6g} {} {:.6g}{}", judged.passed ? "ok" : "FAIL",
                                                      rule.metric, value, sign, judged.limit,
                                                      from_baseline ? " (from the baseline)" : ""));
}

}  // namespace

Result<Answer> check_view(const Source& source, const Asked& asked) {
    Answer answer;
    answer.blocks.push_back({"Check", {}, {}, {}});
    Json rows = Json::array();
    if (asked.against != nullptr) {
        GDNCTL_TRY(check_comparable(asked.against->profile, source.profile, asked.diff, false));
    }
    for (const Rule& rule : asked.rules) {
        GDNCTL_TRY_ASSIGN(const std::optional<double> value, metric_of(source, rule.metric));
        if (!value) {
            return fail(ErrorKind::bad_input, fmt::format("{}: this input cannot tell", rule.metric),
                        "gdnctl trace info shows what it can tell");
        }
        if (rule.max) add_bound(answer, rows, rule, *value, {"max", *rule.max, *value <= *rule.max});
        if (rule.min) add_bound(answer, rows, rule, *value, {"min", *rule.min, *value >= *rule.min});
        if (!rule.max_regression_pct) continue;
        if (asked.against == nullptr) {
            return fail(ErrorKind::usage, fmt::format("{}: max_regression_pct needs --baseline", rule.metric));
        }
        GDNCTL_TRY_ASSIGN(const std::optional<double> before, metric_of(*asked.against, rule.metric));
        if (!before) return fail(ErrorKind::bad_input, fmt::format("{}: the baseline cannot tell", rule.metric));
        const double limit = *before * (1 + *rule.max_regression_pct / 100);
        add_bound(answer, rows, rule, *value, {"max_regression_pct", limit, *value <= limit});
    }
    answer.json = {{"check", {{"passed", answer.exit == ExitCode::ok}, {"rules", rows}}}};
    return answer;
}

}  // namespace gdnctl::trace
