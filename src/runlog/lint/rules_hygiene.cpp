// L601-L604, L607: what a public, long-lived file must not contain.
#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/detail.h"
#include "runlog/parse/home_path.h"

namespace gdnctl::runlog::rule {

using namespace std::string_view_literals;

namespace {

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
        while (begin > 0 && detail::is_digit(text[begin - 1]) && at - begin < 20) --begin;
        while (end < text.size() && detail::is_digit(text[end]) && end - at < 20) ++end;
        const bool number = begin < at && end > at + 1 && end - begin >= 6;
        const bool bounded = (begin == 0 || !(detail::is_word(text[begin - 1]) || text[begin - 1] == '.')) &&
                             (end == text.size() || !(detail::is_word(text[end]) || text[end] == '.'));
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

}  // namespace

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

}  // namespace gdnctl::runlog::rule
