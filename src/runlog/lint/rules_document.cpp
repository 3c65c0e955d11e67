// L003, L004, L101, L107, L108, L601-L604, L607: the file as a whole: the order of entries, the lines that delimit
// them, conflict markers, secrets and paths, length, white space and encoding.
#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/grammar.h"
#include "runlog/records/record.h"

namespace gdnctl::runlog {

namespace {

IterationNumber number_of(const EntryHead& head) { return {head.number, std::string(head.suffix)}; }

// Why `next` must not follow `previous`; empty: it may.
std::string_view order_fault(const EntryHead& previous, const EntryHead& next) {
    if (next.number < previous.number) return "iteration number decreased";
    if (next.number > previous.number) return {};
    if (previous.suffix.empty() && next.suffix.empty()) return "duplicate iteration number";
    if (next.suffix.empty()) return "sub-iteration returned to base number";
    if (!number_of(previous).before(number_of(next))) return "sub-iteration suffix is not increasing";
    return {};
}

// Where a single closing fence would make later entries visible again: before the first hidden entry heading.
const char* obvious_fence_end(std::string_view rest) {
    LineCursor cursor(rest);
    Line line;
    const char* blank_run = nullptr;
    while (cursor.next(line)) {
        const bool blank = text::trim(line.text).empty();
        if (match_heading(line)) return blank_run != nullptr ? blank_run : line.text.data();
        if (!blank) {
            blank_run = nullptr;
        } else if (blank_run == nullptr) {
            blank_run = line.text.data();
        }
    }
    return nullptr;
}

// "###  Iteration 12 – Title" -> "### Iteration 12 - Title"; empty: there is no simple fix.
std::string mended_heading(std::string_view line) {
    std::string_view rest = text::trim(line.substr(3));
    constexpr std::size_t word = std::string_view("iteration").size();
    rest = text::trim(rest.substr(std::min(word, rest.size())));
    const std::string candidate = "### Iteration " + std::string(rest);
    const auto head = match_heading({candidate, 1});
    if (!head) return {};
    std::string mended = "### Iteration " + candidate.substr(14, candidate.find_first_of(" \t:", 14) - 14);
    if (!head->title.empty()) mended += " - " + std::string(head->title);
    const auto again = match_heading({mended, 1});
    return again && again->number == head->number && again->suffix == head->suffix ? mended : std::string();
}

void sequence(const LintRun& run, Reporter& reporter) {
    if (run.options.allow_non_monotonic) return;
    std::unordered_map<std::string, const EntryHead*> seen;
    const EntryHead* previous = nullptr;
    for (const EntryHead& head : run.document.entries) {
        const std::string name = text::to_lower(iteration_text(head));
        const auto [first, fresh] = seen.emplace(name, &head);
        const EntryHead* against = previous;
        std::string_view fault = previous == nullptr ? std::string_view{} : order_fault(*previous, head);
        if (fault.empty() && !fresh) {
            fault = "duplicate iteration number";
            against = first->second;
        }
        if (!fault.empty()) {
            reporter.set_iteration(&head);
            reporter.add({{head.heading, head.line}},
                         fmt::format("{}: line {} `{}` -> line {} `{}`", fault, against->line, against->heading,
                                     head.line, head.heading));
        }
        previous = &head;
    }
}

void no_entries(const LintRun& run, Reporter& reporter) {
    const bool none =
        run.document.kind == Template::experiment ? run.experiments.empty() : run.document.entries.empty();
    if (none) reporter.add({{run.document.text.substr(0, 0), 1}}, "the log has no entries");
}

void malformed_heading(const LintRun& run, Reporter& reporter) {
    const std::uint32_t first = run.whole_file() || run.document.entries.empty() ? 0 : run.document.entries.back().line;
    for (const Line& line : run.document.malformed_headings) {
        if (line.number < first) continue;
        std::optional<Fix> fix;
        if (std::string mended = mended_heading(line.text); !mended.empty()) {
            fix = reporter.safe(line.text, std::move(mended));
        }
        reporter.add({line}, "a heading that looks like an entry but is not one; write `### Iteration 12 - title`",
                     std::move(fix));
    }
}

void heading_dash(const EntryFacts& facts, Reporter& reporter) {
    const EntryHead& head = facts.entry.head;
    for (const std::string_view dash : {"\xE2\x80\x93", "\xE2\x80\x94"}) {
        const std::size_t found = head.heading.find(dash);
        const std::size_t title = head.title.empty()
                                      ? head.heading.size()
                                      : static_cast<std::size_t>(head.title.data() - head.heading.data());
        if (found == std::string_view::npos || found >= title) continue;
        const std::string_view part = head.heading.substr(found, dash.size());
        reporter.add({{head.heading, head.line}, part}, "the separator between number and title is ` - `",
                     reporter.safe(part, "-"));
        return;
    }
}

void unclosed_block(const LintRun& run, Reporter& reporter) {
    if (!run.document.unclosed) return;
    const auto& [fence, what] = *run.document.unclosed;
    const bool in_entry = !run.document.entries.empty() && fence.number > run.document.entries.back().line;
    if (in_entry) reporter.set_iteration(&run.document.entries.back());
    std::optional<Fix> fix;
    const char* begin = fence.text.data() + fence.text.size();
    const char* end = run.document.text.data() + run.document.text.size();
    if (const char* place = obvious_fence_end({begin, static_cast<std::size_t>(end - begin)});
        in_entry && place != nullptr && what == "code fence") {  // a comment was meant to hide what follows
        const std::size_t indent = fence.text.find_first_of("`~");
        const std::size_t length = fence.text.find_first_not_of(fence.text[indent], indent);
        const std::string closing(fence.text.substr(0, length));
        const auto offset = static_cast<std::size_t>(place - run.document.bytes.data());
        fix = Fix{true, {{offset, 0, closing + std::string(run.document.newline())}}};
    }
    reporter.add({fence}, fmt::format("the {} is never closed and hides everything after it", what), std::move(fix));
}

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
    return is_blank(line[run]) && line[0] != '=' ? line[0] : '\0';
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

// L601-L604, L607: what a public, long-lived file must not contain.

using namespace std::string_view_literals;

constexpr std::size_t k_max_edits = 200'000;  // per finding; the next round of fixing handles the rest

// Finds the line of a position in a region; positions must come in order.
class Locator {
public:
    explicit Locator(const Region& region) : m_cursor(region.text, region.first_line) { m_cursor.next(m_line); }
    const Line& line_of(const char* place) {
        while (place > m_line.text.data() + m_line.text.size() && m_cursor.next(m_line)) {
        }
        return m_line;
    }

private:
    LineCursor m_cursor;
    Line m_line;
};

// Counts numbers with a fraction and at least five digits, which are copied from a profile.
void count_numbers(std::string_view text, std::unordered_map<std::string_view, std::size_t>& counts) {
    for (std::size_t at = text.find('.'); at != std::string_view::npos; at = text.find('.', at + 1)) {
        std::size_t begin = at, end = at + 1;
        while (begin > 0 && is_digit(text[begin - 1]) && at - begin < 20) --begin;
        while (end < text.size() && is_digit(text[end]) && end - at < 20) ++end;
        const bool number = begin < at && end > at + 1 && end - begin >= 6;
        const bool bounded = (begin == 0 || !(is_word(text[begin - 1]) || text[begin - 1] == '.')) &&
                             (end == text.size() || !(is_word(text[end]) || text[end] == '.'));
        if (number && bounded && text.substr(begin, end - begin).find_first_not_of("0.") != std::string_view::npos) {
            ++counts[text.substr(begin, end - begin)];
        }
    }
}

void check_repeated(const Region& region, Reporter& reporter) {
    std::unordered_map<std::string_view, std::size_t> counts;
    count_numbers(region.text, counts);
    std::string_view most;
    std::size_t several = 0;
    for (const auto& [number, count] : counts) {
        if (count < 3) continue;
        ++several;
        if (most.empty() || count > counts[most] || (count == counts[most] && number.data() < most.data()))
            most = number;
    }
    if (several == 0) return;
    const std::size_t times = counts[most];
    std::string message = fmt::format("{} appears {} times; once is enough", most, times);
    if (several > 1)
        message += several == 2 ? " (one other number too)" : fmt::format(" ({} other numbers too)", several - 1);
    reporter.add({region.heading}, message);
}

std::string_view trailing_blanks(std::string_view line) {
    const std::size_t last = line.find_last_not_of(" \t");
    return line.substr(last == std::string_view::npos ? 0 : last + 1);
}

void check_trailing(const Region& region, Reporter& reporter) {
    LineCursor cursor(region.text, region.first_line);
    Line line, first;
    Fix fix{true, {}};
    std::size_t count = 0;
    while (cursor.next(line)) {
        const std::string_view blanks = trailing_blanks(line.text);
        if (blanks.empty()) continue;
        if (count++ == 0) first = line;
        if (fix.edits.size() < k_max_edits) fix.edits.push_back(reporter.replace(blanks, ""));
    }
    if (count == 0) return;
    reporter.set_iteration(region.iteration);
    const std::string more =
        count == 1 ? "" : fmt::format(" (and {} more {} here)", count - 1, count == 2 ? "line" : "lines");
    reporter.add({first, trailing_blanks(first.text)}, "trailing white space" + more, std::move(fix));
}

// Every line must end as most lines do.
void check_endings(const LintRun& run, Reporter& reporter) {
    std::size_t counts[3] = {};
    const auto kind = [](std::string_view ending) { return ending.size() == 2 ? 1 : ending == "\r" ? 2 : 0; };
    Line line;
    for (LineCursor cursor(run.document.text); cursor.next(line);) {
        if (!cursor.ending().empty()) ++counts[kind(cursor.ending())];
    }
    const auto most = static_cast<int>(std::max_element(counts, counts + 3) - counts);
    constexpr std::string_view endings[] = {"\n", "\r\n", "\r"};
    Fix fix{true, {}};
    Line first;
    std::size_t count = 0;
    for (LineCursor cursor(run.document.text); cursor.next(line);) {
        if (cursor.ending().empty() || kind(cursor.ending()) == most) continue;
        if (count++ == 0) first = line;
        if (fix.edits.size() < k_max_edits) {
            fix.edits.push_back(reporter.replace(cursor.ending(), std::string(endings[most])));
        }
    }
    reporter.set_iteration(nullptr);
    reporter.add({first},
                 count == 1 ? "mixed line endings: one line differs from the rest"
                            : fmt::format("mixed line endings: {} lines differ from the rest", count),
                 std::move(fix));
}

// The first byte that is not part of valid UTF-8, or npos. Skips plain ASCII in big steps.
std::size_t first_invalid(std::string_view s) {
    if (text::is_valid_utf8(s)) return std::string_view::npos;
    // Bisect: valid up to `low`, the fault is before `high`.
    LineCursor cursor(s);
    Line line;
    while (cursor.next(line)) {
        if (text::is_valid_utf8(line.text)) continue;
        std::size_t at = 0;
        while (at < line.text.size()) {
            std::size_t n = 1;
            while (n <= 4 && at + n <= line.text.size() && !text::is_valid_utf8(line.text.substr(at, n))) ++n;
            if (n > 4 || at + n > line.text.size()) break;
            at += n;
        }
        return static_cast<std::size_t>(line.text.data() - s.data()) + at;
    }
    return std::string_view::npos;
}

// Carriage returns end lines.
std::string_view first_unseen(std::string_view s) {
    for (;;) {
        const std::string_view found = text::find_unseen(s);
        if (found != "\r") return found;
        s.remove_prefix(static_cast<std::size_t>(found.data() + found.size() - s.data()));
    }
}

void home_paths(const LintRun& run, Reporter& reporter) {
    for_each_region(run, [&](const Region& region) {
        const std::vector<HomePath> paths = find_home_paths(region.text);
        if (paths.empty()) return;
        reporter.set_iteration(region.iteration);
        Locator locator(region);
        for (const HomePath& path : paths) {
            const std::string_view part = region.text.substr(path.offset, path.length);
            reporter.add({locator.line_of(part.data()), part}, "a path in someone's home directory",
                         reporter.safe(part, "~"));
        }
    });
}

// Searches the whole file whatever the scope: a leaked secret matters anywhere.
void secrets(const LintRun& run, Reporter& reporter) {
    const std::string_view text = run.document.text;
    const std::vector<SecretShape> shapes = find_secret_shapes(text);
    const std::vector<EntryHead>& entries = run.document.entries;
    Locator locator({text, 1, false, {}, {}});
    for (const SecretShape& shape : shapes) {
        const std::string_view secret = text.substr(shape.offset, shape.length);
        const auto next =
            std::upper_bound(entries.begin(), entries.end(), secret.data(),
                             [](const char* place, const EntryHead& head) { return place < head.text.data(); });
        const bool in_entry =
            next != entries.begin() && secret.data() < std::prev(next)->text.data() + std::prev(next)->text.size();
        reporter.set_iteration(in_entry ? &*std::prev(next) : nullptr);
        const Line& line = locator.line_of(secret.data());
        // A key of several lines is shown by its first line.
        const auto room = static_cast<std::size_t>(line.text.data() + line.text.size() - secret.data());
        const std::string shown = text::repair_utf8(secret.substr(0, 4));
        reporter.add(
            {line, secret.substr(0, std::min(room, secret.size()))},
            fmt::format("a secret ({}, `{}…`): revoke it, because removing it from a published log is not enough",
                        shape.kind, shown),
            reporter.unsafe(secret, "***"));
    }
}

void too_long(const LintRun& run, Reporter& reporter) {
    constexpr std::size_t entry_limit = 8u << 10, file_limit = 256u << 10;
    if (run.document.bytes.size() > file_limit) {
        reporter.set_iteration(nullptr);
        reporter.add({{run.document.text.substr(0, 0), 1}},
                     fmt::format("the log is {} KiB long; `gdnctl log context` prints a short summary",
                                 run.document.bytes.size() >> 10));
    }
    for_each_region(run, [&](const Region& region) {
        if (!region.is_entry) return;
        reporter.set_iteration(region.iteration);
        if (region.text.size() > entry_limit) {
            reporter.add({region.heading},
                         fmt::format("the entry is {:.1f} KiB long; move details beyond 8 KiB to its record",
                                     static_cast<double>(region.text.size()) / 1024));
        }
        check_repeated(region, reporter);
    });
}

void white_space(const LintRun& run, Reporter& reporter) {
    if (run.document.ending == LineEnding::mixed) check_endings(run, reporter);
    for_each_region(run, [&](const Region& region) { check_trailing(region, reporter); });
}

void invalid_utf8(const LintRun& run, Reporter& reporter) {
    for_each_region(run, [&](const Region& region) {
        const std::size_t invalid = first_invalid(region.text);
        const std::string_view unseen = first_unseen(region.text);
        const std::size_t hidden =
            unseen.empty() ? std::string_view::npos : static_cast<std::size_t>(unseen.data() - region.text.data());
        if (invalid == std::string_view::npos && unseen.empty()) return;
        const std::string_view part = invalid < hidden ? region.text.substr(invalid, 1) : unseen;
        reporter.set_iteration(region.iteration);
        Locator locator(region);
        reporter.add({locator.line_of(part.data()), part},
                     invalid < hidden   ? "not UTF-8; the byte is read as U+FFFD"
                     : unseen == "\0"sv ? "a NUL byte in the text"
                                        : fmt::format("the character {} is invisible and can hide or reorder text",
                                                      text::visible(unseen)));
    });
}

}  // namespace

// L108: conflict markers of an unresolved merge. A log that grows at its end conflicts whenever two branches add an
// entry.

std::optional<Line> first_conflict(std::string_view text) {
    BlockTracker tracker;
    Line line;
    for (LineCursor cursor(text); cursor.next(line);) {
        const bool inside = tracker.inside(line.text) || tracker.commented();
        const char mark = conflict_mark(line.text);
        if (!inside && (mark == '<' || mark == '>')) return line;
    }
    return std::nullopt;
}

std::span<const Rule> document_rules() {
    using enum Severity;
    static constexpr std::array k_rules = {
        on_document({"L003", "sequence", error, "iteration numbers do not increase",
                     "Number entries upwards; a repeated attempt gets a letter (12, 12a, 12b)."},
                    &sequence),
        on_document({"L004", "no-entries", warning, "the file has no entries", "`gdnctl log new` starts one."},
                    &no_entries),
        Rule{{"L101", "heading", warning, "a heading is meant as an entry but is not one, or has another separator",
              "Write `### Iteration 12 - title`."},
             &heading_dash,
             &malformed_heading,
             nullptr},
        on_document(
            {"L107", "unclosed-fence", warning, "a code fence or an HTML comment is not closed and hides later entries",
             "Close a fence with as many marks as it was opened with, a comment with `-->`."},
            &unclosed_block),
        on_document({"L108", "conflict-marks", warning, "markers of an unresolved merge conflict",
                     "Keep the entries of both sides, renumber them and delete the markers."},
                    &conflict_marks),
        on_document({"L601", "home-path", warning, "a path in someone's home directory",
                     "Write it relative to the repository, or with `~`."},
                    &home_paths),
        on_document({"L602", "secret", error, "the log contains a secret", "Revoke it, then mask it (`--fix-unsafe`)."},
                    &secrets),
        on_document({"L603", "too-long", note, "an entry or the file is long, or a number is repeated",
                     "Move details to the record, and state each number once."},
                    &too_long),
        on_document(
            {"L604", "white-space", note, "mixed line endings or trailing white space", "`--fix` removes them."},
            &white_space),
        on_document(
            {"L607", "invalid-text", warning, "bytes that are not UTF-8, control characters or invisible characters",
             "Save the file as UTF-8, and delete the character; `gdnctl log render` does so in generated entries."},
            &invalid_utf8)};
    return k_rules;
}

}  // namespace gdnctl::runlog
