#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/parse/detail.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

namespace {

constexpr std::string_view k_heading = "### Iteration ";
constexpr std::size_t k_max_digits = 18;  // more do not fit the integer

// Counts line endings, to choose one for new lines.
class EndingCounter {
public:
    void add(std::string_view ending) {
        if (ending.empty()) return;
        const LineEnding kind = ending.size() == 2  ? LineEnding::crlf
                                : ending[0] == '\r' ? LineEnding::cr
                                                    : LineEnding::lf;
        if (m_kind == LineEnding::none) m_kind = kind;
        if (m_kind != kind) m_kind = LineEnding::mixed;
    }
    LineEnding kind() const { return m_kind; }

private:
    LineEnding m_kind = LineEnding::none;
};

// The line's text if it is a heading of level 1 or 2 (up to three leading blanks are allowed); empty: it is not.
std::string_view section_heading(std::string_view line, const BlockTracker& tracker) {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (indent > 3 || (indent > 0 && tracker.in_list())) return {};
    line.remove_prefix(indent);
    const std::size_t level = std::min(line.find_first_not_of('#'), line.size());
    const bool section = (level == 1 || level == 2) && (level == line.size() || detail::is_blank(line[level]));
    return section ? line : std::string_view();
}

// Level 3, the word "Iteration" in any case, misplaced blanks: meant as an entry.
bool looks_like_entry(std::string_view line) {
    if (!line.starts_with("###") || line.starts_with("####")) return false;
    const std::string_view rest = text::trim(line.substr(3));
    constexpr std::string_view word = "iteration";
    if (rest.size() <= word.size() || text::to_lower(rest.substr(0, word.size())) != word) return false;
    const std::string_view after = text::trim(rest.substr(word.size()));
    return line.starts_with(k_heading) || (!after.empty() && detail::is_digit(after[0]));
}

bool is_dated_heading(std::string_view line) {
    return line.size() >= 13 && line.starts_with("## ") && detail::is_date(line.substr(3, 10));
}

struct Scan {
    Document& document;
    BlockTracker tracker;
    EndingCounter endings;
    bool in_entry = false;
    bool dated = false;

    void close_entry(const char* end, std::uint32_t next_line) {
        if (!in_entry) return;
        EntryHead& head = document.entries.back();
        head.text = std::string_view(head.heading.data(), static_cast<std::size_t>(end - head.heading.data()));
        head.line_count = next_line - head.line;
        in_entry = false;
    }

    Status add(const Line& line) {
        if (line.text.size() > k_max_line_bytes) {
            return fail(ErrorKind::usage, fmt::format("line {} is longer than 1 MiB", line.number),
                        "a running log has lines of text; look at that line");
        }
        const bool was_open = tracker.open();
        if (tracker.inside(line.text)) {
            if (!was_open && tracker.open()) document.unclosed = {line, tracker.open_name()};
            return {};
        }
        if (const auto& [first, lines] = tracker.underlined(); !first.empty()) {
            close_entry(first.data(), line.number - lines);
            return {};
        }
        if (line.text.empty() || (line.text[0] != '#' && line.text[0] != ' ')) return {};
        if (const std::string_view heading = section_heading(line.text, tracker); !heading.empty()) {
            close_entry(line.text.data(), line.number);
            dated = dated || is_dated_heading(heading);
            return {};
        }
        if (line.text[0] != '#') return {};
        return add_heading(line);
    }

    Status add_heading(const Line& line) {
        if (const auto head = detail::match_heading(line)) {
            close_entry(line.text.data(), line.number);
            if (document.entries.size() == k_max_entries) {
                return fail(ErrorKind::usage, "more than 100000 entries", "split the log");
            }
            document.entries.push_back(*head);
            in_entry = true;
        } else if (looks_like_entry(line.text)) {
            document.malformed_headings.push_back(line);
        }
        return {};
    }
};

}  // namespace

namespace detail {

std::optional<EntryHead> match_heading(const Line& line) {
    if (!line.text.starts_with(k_heading)) return std::nullopt;
    const std::string_view rest = line.text.substr(k_heading.size());
    std::size_t digits = 0;
    while (digits < rest.size() && is_digit(rest[digits])) ++digits;
    if (digits == 0 || digits > k_max_digits) return std::nullopt;
    std::size_t end = digits;
    while (end < rest.size() && is_alpha(rest[end])) ++end;
    if (end < rest.size() && (is_digit(rest[end]) || rest[end] == '_')) return std::nullopt;
    EntryHead head;
    head.heading = line.text;
    head.line = line.number;
    head.number = text::parse_int(strip_zeros(rest.substr(0, digits))).value_or(0);
    head.suffix = rest.substr(digits, end - digits);
    std::string_view title = text::trim(rest.substr(end));
    for (const std::string_view separator : {"-", ":", "\xE2\x80\x93", "\xE2\x80\x94"}) {
        if (title.starts_with(separator)) {
            title = text::trim(title.substr(separator.size()));
            break;
        }
    }
    head.title = title;
    return head;
}

}  // namespace detail

Result<Document> parse_document(std::string_view bytes, TemplateChoice choice) {
    if (bytes.size() > k_max_file_bytes) {
        return fail(ErrorKind::usage, "the file is larger than 64 MiB", "split the log");
    }
    Document document;
    document.bytes = bytes;
    document.has_bom = bytes.starts_with("\xEF\xBB\xBF");
    document.text = document.has_bom ? bytes.substr(3) : bytes;
    document.final_newline = !document.text.empty() && (document.text.back() == '\n' || document.text.back() == '\r');

    Scan scan{document, {}, {}};
    LineCursor cursor(document.text);
    Line line;
    while (cursor.next(line)) {
        scan.endings.add(cursor.ending());
        GDNCTL_TRY(scan.add(line));
    }
    document.line_count = line.number;
    scan.close_entry(bytes.data() + bytes.size(), line.number + 1);
    if (!scan.tracker.open()) document.unclosed.reset();
    document.ending = scan.endings.kind();
    const bool experiment = choice == TemplateChoice::experiment ||
                            (choice == TemplateChoice::automatic && scan.dated && document.entries.empty());
    document.kind = experiment ? Template::experiment : Template::hillclimb;
    return document;
}

}  // namespace gdnctl::runlog
