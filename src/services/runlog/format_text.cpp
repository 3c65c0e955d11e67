// Findings for people, and the lines that scripts of the original look for.
#include <fmt/format.h>

#include "gdnctl/core/text.h"
#include "gdnctl/services/runlog/lint.h"

namespace gdnctl::runlog {

namespace {

// Rules whose errors come as a block on stderr, with texts that scripts match.
struct Block {
    std::string_view rule;
    std::string_view title;
    bool with_message;  // else the line number
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

}  // namespace

LintText lint_as_text(const LintReport& report, std::string_view path, bool complete) {
    LintText text;
    for (const Block& block : k_blocks) {
        bool titled = false;
        for (const Finding& finding : report.findings) {
            if (finding.rule->id != block.rule || !in_block(finding)) continue;
            if (!titled) text.err += fmt::format("[gdnctl] {} {}:\n", block.title, path);
            titled = true;
            text.err += block.with_message ? fmt::format("[gdnctl]   {}\n", text::repair_utf8(finding.message))
                                           : fmt::format("[gdnctl]   line {}\n", finding.line);
        }
    }
    for (const Finding& finding : report.findings) {
        if (in_block(finding)) continue;
        text.out += fmt::format("{}:{}:{}: {} {} {}\n", path, finding.line, finding.column, name_of(finding.severity),
                                finding.rule->id, text::repair_utf8(finding.message));
    }
    if (report.left_out != 0) {
        text.out +=
            fmt::format("{}: {} more {}\n", path, report.left_out, report.left_out == 1 ? "finding" : "findings");
    }
    if (complete && !report.failed()) text.out += fmt::format("[gdnctl] log lint passed: {}\n", path);
    return text;
}

}  // namespace gdnctl::runlog
