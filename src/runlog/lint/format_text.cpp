// Findings for people, and the texts that scripts written for the original look for.
#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/lint.h"

namespace gdnctl::runlog {

namespace {

// Rules whose errors are printed as a block on stderr, with texts that scripts match.
struct Block {
    std::string_view rule;
    std::string_view title;
    bool with_message;  // false: with the line number
};
constexpr Block k_blocks[] = {{"L001", "unresolved `Commit: (pending)` entries in", false},
                              {"L002", "unresolved `Commit: this commit` entries in", false},
                              {"L003", "non-monotonic iteration headings in", true}};

bool in_block(const Finding& finding) {
    if (finding.severity != Severity::error) return false;
    for (const Block& block : k_blocks) {
        if (block.rule == finding.rule->id) return true;
    }
    return false;
}

// "3 errors, 14 warnings, 2 notes, 3 fixable"
std::string counts(const LintReport& report) {
    const auto many = [](std::size_t n, std::string_view word) {
        return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
    };
    std::string text =
        many(report.count(Severity::error), "error") + ", " + many(report.count(Severity::warning), "warning");
    if (report.count(Severity::note) != 0) text += ", " + many(report.count(Severity::note), "note");
    const auto fixable = std::count_if(report.findings.begin(), report.findings.end(),
                                       [](const Finding& finding) { return finding.fix && finding.fix->safe; });
    return fmt::format("{}, {} fixable", text, fixable);
}

}  // namespace

LintText lint_as_text(const LintReport& report, std::string_view path, const LintTextOptions& options) {
    LintText text;
    for (const Block& block : k_blocks) {
        bool titled = false;
        for (const Finding& finding : report.findings) {
            if (finding.rule->id != block.rule || !in_block(finding)) continue;
            if (!titled) text.blocks += fmt::format("[gdnctl] {} {}:\n", block.title, path);
            titled = true;
            text.blocks += block.with_message ? fmt::format("[gdnctl]   {}\n", text::repair_utf8(finding.message))
                                              : fmt::format("[gdnctl]   line {}\n", finding.line);
        }
    }
    for (const Finding& finding : report.findings) {
        if (in_block(finding)) continue;
        text.findings += fmt::format("{}:{}:{}: {} {} {}\n", path, finding.line, finding.column,
                                     name_of(finding.severity), finding.rule->id, text::repair_utf8(finding.message));
    }
    if (report.left_out != 0) {
        text.findings +=
            fmt::format("{}: {} more {}\n", path, report.left_out, report.left_out == 1 ? "finding" : "findings");
    }
    if (!text.findings.empty()) text.findings += counts(report) + "\n";
    if (!options.complete) return text;
    if (report.checked == 0) {
        text.verdict = options.since.empty()
                           ? fmt::format("[gdnctl] nothing was checked: no entry in {}\n", path)
                           : fmt::format("[gdnctl] nothing was checked: no entry in {} is new or changed since {}\n",
                                         path, options.since);
    } else if (!report.failed()) {
        text.verdict = fmt::format("[gdnctl] log lint passed: {}\n", path);
    }
    return text;
}

}  // namespace gdnctl::runlog
