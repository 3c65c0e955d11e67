// L108: conflict markers of an unresolved merge. A log that grows at its end conflicts whenever two branches add an
// entry.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/detail.h"

namespace gdnctl::runlog {

namespace {

constexpr std::size_t k_mark_length = 7;  // the length of git's markers, unless the attribute conflict-marker-size
                                          // changes it

// '<', '|', '=' or '>' if the line is a conflict marker; 0: it is not.
char conflict_mark(std::string_view line) {
    if (line.size() < k_mark_length || std::string_view("<|=>").find(line[0]) == std::string_view::npos) return 0;
    const std::size_t run = std::min(line.find_first_not_of(line[0]), line.size());
    if (run < k_mark_length) return 0;
    const std::string_view label = text::trim(line.substr(run));
    if (label.empty()) return line[0];
    // The markers of a side have its name after a blank; the one between the sides has no name.
    return detail::is_blank(line[run]) && line[0] != '=' ? line[0] : '\0';
}

class Conflicts {
public:
    explicit Conflicts(Reporter& reporter) : m_reporter(reporter) {}

    void add(const Line& line, char mark, bool is_text) {
        if (mark == '<') {
            close();
            m_open = line;
            m_last = line.number;
        } else if (m_open) {
            m_last = line.number;
            if (mark == '>') close();
        } else if (mark != '=' || is_text) {
            m_reporter.add({line}, "an unresolved merge conflict marker");
        }
    }

    void close() {
        if (!m_open) return;
        const std::string rest =
            m_last == m_open->number ? std::string() : fmt::format(", its markers end in line {}", m_last);
        m_reporter.add({*m_open}, "an unresolved merge conflict begins here" + rest);
        m_open.reset();
    }

private:
    Reporter& m_reporter;
    std::optional<Line> m_open;
    std::uint32_t m_last = 0;
};

}  // namespace

std::optional<Line> detail::first_conflict(std::string_view text) {
    BlockTracker tracker;
    Line line;
    for (LineCursor cursor(text); cursor.next(line);) {
        const bool inside = tracker.inside(line.text) || tracker.commented();
        const char mark = conflict_mark(line.text);
        if (!inside && (mark == '<' || mark == '>')) return line;
    }
    return std::nullopt;
}

namespace rule {

void conflict_marks(const LintRun& run, Reporter& reporter) {
    Conflicts conflicts(reporter);
    BlockTracker tracker;
    bool in_table = false;
    Line line;
    for (LineCursor cursor(run.document.text); cursor.next(line);) {
        const bool inside = tracker.inside(line.text);
        const char mark = conflict_mark(line.text);
        // Not a marker: seven empty cells of a table, the underline of a heading, or a rule in quoted output.
        const bool row = mark == '|' && line.text.find_first_not_of('|') == std::string_view::npos && in_table;
        const bool heading = !tracker.underlined().first.empty();
        if (mark != 0 && !row) conflicts.add(line, mark, !inside && !heading && line.text.size() == k_mark_length);
        in_table = line.text.starts_with('|') && (mark == 0 || row);
    }
    conflicts.close();
}

}  // namespace rule

}  // namespace gdnctl::runlog
