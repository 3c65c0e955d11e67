#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/lint.h"

namespace gdnctl::runlog {

namespace {

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
    const auto nearest = text::nearest(word, candidates);
    return nearest ? fmt::format("did you mean `{}`?", *nearest) : std::string();
}

}  // namespace

Status add_rule_option(LintOptions& options, std::string_view text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) {
        return fail(ErrorKind::usage, fmt::format("`{}` is not a rule setting", text),
                    "write ID=off|note|warning|error");
    }
    const std::string_view id = text::trim(text.substr(0, equals));
    const std::string_view value = text::trim(text.substr(equals + 1));
    const RuleInfo* rule = find_lint_rule(id);
    if (rule == nullptr) {
        std::vector<std::string> ids;
        for (const RuleInfo& info : lint_rules()) {
            ids.emplace_back(info.id);
            ids.emplace_back(info.name);
        }
        std::string hint = suggestion(id, ids);
        if (hint.empty()) hint = "docs/reference/lint-rules.md lists the rules";
        return fail(ErrorKind::usage, fmt::format("unknown rule `{}`", id), std::move(hint));
    }
    const auto severity = parse_severity(value);
    if (!severity) {
        std::string hint = suggestion(value, {"off", "note", "warning", "error"});
        if (hint.empty()) hint = "one of off, note, warning, error";
        return fail(ErrorKind::usage, fmt::format("unknown severity `{}` for rule {}", value, rule->id),
                    std::move(hint));
    }
    options.severities.emplace_back(rule->id, *severity);
    return {};
}

Status add_rules_file(LintOptions& options, std::string_view content, std::string_view name) {
    LineCursor cursor(content);
    Line line;
    while (cursor.next(line)) {
        const std::string_view text = text::trim(line.text.substr(0, line.text.find('#')));
        if (text.empty()) continue;
        const std::size_t equals = text.find('=');
        const std::string_view key = text::trim(text.substr(0, equals));
        const std::string_view value =
            equals == std::string_view::npos ? std::string_view{} : text::trim(text.substr(equals + 1));
        const std::string where = fmt::format("{}:{}", name, line.number);
        if (key == "change-class" && !value.empty()) {
            options.change_classes.emplace_back(value);
        } else if (key == "window-points") {
            const auto points = text::parse_int(value);
            if (!points || *points < 1) {
                return fail(ErrorKind::usage, fmt::format("{}: `{}` is not a number of points", where, value));
            }
            options.window_points_min = *points;
        } else if (auto added = add_rule_option(options, text); !added) {
            return tl::unexpected(std::move(added).error().within(where));
        }
    }
    return {};
}

}  // namespace gdnctl::runlog
