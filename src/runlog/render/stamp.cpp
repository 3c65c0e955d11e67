#include "runlog/render/stamp.h"

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/parse/block.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

namespace {

constexpr std::string_view k_label = "- Commit:";

// The last commit bullet of an entry, outside fenced code.
std::optional<Line> last_commit_line(const EntryHead& entry) {
    LineCursor cursor(entry.text, entry.line);
    BlockTracker tracker;
    Line line;
    std::optional<Line> last;
    while (cursor.next(line)) {
        if (!tracker.inside(line.text) && text::trim(line.text).starts_with(k_label)) last = line;
    }
    return last;
}

}  // namespace

Result<Stamp> stamp_last_entry(std::string_view log, std::string_view sha) {
    GDNCTL_TRY_ASSIGN(const auto document, parse_document(log));
    Stamp stamp;
    if (document.entries.empty()) {
        stamp.reason = "the log has no entry";
        return stamp;
    }
    const EntryHead& entry = document.entries.back();
    const auto line = last_commit_line(entry);
    if (!line) {
        stamp.reason = fmt::format("the last entry (line {}) has no `- Commit:`", entry.line);
        return stamp;
    }
    const std::string_view trimmed = text::trim(line->text);
    const std::string_view value = text::trim(trimmed.substr(k_label.size()));
    if (value != "this commit" && value != "(pending)") {
        stamp.reason = fmt::format("line {} already says `{}`", line->number, trimmed);
        return stamp;
    }
    for (const GeneratedBlock& block : find_blocks(document.text)) {
        const bool inside =
            line->text.data() >= block.whole.data() && line->text.data() < block.whole.data() + block.whole.size();
        if (inside) stamp.record_id = block.id;
    }
    const std::size_t begin = document.offset(line->text);
    const std::string_view indent = line->text.substr(0, line->text.find('-'));
    stamp.text =
        fmt::format("{}{}{} {}{}", log.substr(0, begin), indent, k_label, sha, log.substr(begin + line->text.size()));
    if (!document.final_newline) stamp.text += document.newline();
    stamp.line = line->number;
    stamp.stamped = true;
    return stamp;
}

}  // namespace gdnctl::runlog
