// Workflow commands, which GitHub shows as annotations, and the table of the step summary.
#include <array>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/lint.h"

namespace gdnctl::runlog {

namespace {

constexpr std::size_t k_shown_per_kind = 10;       // GitHub does not display more
constexpr std::size_t k_summary_limit = 1u << 20;  // bytes that a step may write

std::string_view command_of(Severity severity) {
    return severity == Severity::error ? "error" : severity == Severity::warning ? "warning" : "notice";
}

std::string escape(std::string_view s, bool property) {
    std::string out;
    for (const char c : text::repair_utf8(s)) {
        switch (c) {
            case '%': out += "%25"; break;
            case '\r': out += "%0D"; break;
            case '\n': out += "%0A"; break;
            case ':': out += property ? "%3A" : ":"; break;
            case ',': out += property ? "%2C" : ","; break;
            default: out += c;
        }
    }
    return out;
}

std::string annotation(const Finding& finding, std::string_view path) {
    std::string where = fmt::format("file={},line={},endLine={}", escape(path, true), finding.line, finding.end_line);
    if (finding.end_line == finding.line) where += fmt::format(",col={}", finding.column);
    const std::string title = fmt::format("{} {}", finding.rule->id, finding.rule->name);
    const std::string subject = finding.iteration.empty()
                                    ? finding.message
                                    : fmt::format("iteration {}: {}", finding.iteration, finding.message);
    return fmt::format("::{} {},title={}::{}\n", command_of(finding.severity), where, escape(title, true),
                       escape(subject, false));
}

std::string cell(std::string_view s) {
    std::string out;
    for (const char c : text::repair_utf8(s)) {
        if (c == '|') out += '\\';
        out += c == '\n' || c == '\r' ? ' ' : c;
    }
    return out;
}

}  // namespace

std::string lint_as_github(const LintReport& report, std::string_view path) {
    std::string out;
    for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
        std::size_t shown = 0;
        for (const Finding& finding : report.findings) {
            if (finding.severity != severity) continue;
            if (++shown > k_shown_per_kind) break;
            out += annotation(finding, path);
        }
    }
    std::array<std::size_t, 4> rest{};
    std::size_t total = 0;
    for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
        const std::size_t n = report.count(severity);
        rest[static_cast<std::size_t>(severity)] = n > k_shown_per_kind ? n - k_shown_per_kind : 0;
        total += rest[static_cast<std::size_t>(severity)];
    }
    if (total != 0) {
        out += fmt::format("{} more findings are not annotated: {} errors, {} warnings, {} notes\n", total, rest[3],
                           rest[2], rest[1]);
    }
    return out;
}

std::string lint_as_step_summary(const LintReport& report, std::string_view path) {
    std::string out = fmt::format("### gdnctl lint-log: {}\n\n{} entries, {} errors, {} warnings, {} notes\n",
                                  cell(path), report.entries, report.count(Severity::error),
                                  report.count(Severity::warning), report.count(Severity::note));
    if (report.findings.empty()) return out;
    out += "\n| line | iteration | severity | rule | message |\n|---|---|---|---|---|\n";
    std::size_t rows = 0;
    for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
        for (const Finding& finding : report.findings) {
            if (finding.severity != severity) continue;
            const std::string row =
                fmt::format("| {} | {} | {} | {} {} | {} |\n", finding.line, cell(finding.iteration), name_of(severity),
                            finding.rule->id, finding.rule->name, cell(finding.message));
            if (out.size() + row.size() + 100 > k_summary_limit) {
                out += fmt::format("\n{} more findings\n", report.findings.size() - rows);
                return out;
            }
            out += row;
            ++rows;
        }
    }
    return out;
}

}  // namespace gdnctl::runlog
