#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/parse/grammar.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

bool LineCursor::next(Line& line) {
    if (m_rest.empty()) return false;
    const char* begin = m_rest.data();
    const char* end = begin + m_rest.size();
    if (m_line_feed == nullptr || m_line_feed < begin) {
        const void* found = std::memchr(begin, '\n', m_rest.size());
        m_line_feed = found == nullptr ? end : static_cast<const char*>(found);
    }
    const char* stop = m_line_feed;
    std::size_t ending = stop == end ? 0 : 1;
    if (const void* found = std::memchr(begin, '\r', static_cast<std::size_t>(stop - begin)); found != nullptr) {
        const char* carriage_return = static_cast<const char*>(found);
        ending = carriage_return + 1 == stop && stop != end ? 2 : 1;
        stop = carriage_return;
    }
    const auto length = static_cast<std::size_t>(stop - begin);
    line.text = m_rest.substr(0, length);
    line.number = m_next++;
    m_ending = m_rest.substr(length, ending);
    m_rest.remove_prefix(length + ending);
    return true;
}

// Markdown blocks that hide lines or end entries, by the rules of CommonMark 0.31, chapters 4 and 5. Tabs, block quotes
// and indented code are simplified, since no entry depends on them.

namespace {

constexpr std::array<std::string_view, 4> k_raw_tags = {"pre", "script", "style", "textarea"};

bool starts_with_word(std::string_view s, std::string_view lower_case_word) {
    if (s.size() < lower_case_word.size()) return false;
    return std::equal(lower_case_word.begin(), lower_case_word.end(), s.begin(),
                      [](char a, char b) { return a == lower(b); });
}

// `<pre>`, `<script src=x>`
bool opens_raw(std::string_view ink) {
    return std::any_of(k_raw_tags.begin(), k_raw_tags.end(), [&](std::string_view tag) {
        if (!starts_with_word(ink.substr(1), tag)) return false;
        const std::size_t end = 1 + tag.size();
        return end == ink.size() || ink[end] == '>' || is_blank(ink[end]);
    });
}

bool closes_raw(std::string_view ink) {
    for (std::size_t at = ink.find("</"); at != std::string_view::npos; at = ink.find("</", at + 2)) {
        const std::string_view rest = ink.substr(at + 2);
        for (const std::string_view tag : k_raw_tags) {
            if (starts_with_word(rest, tag) && rest.size() > tag.size() && rest[tag.size()] == '>') return true;
        }
    }
    return false;
}

bool only(std::string_view s, char mark, bool blanks_between) {
    const std::size_t end = s.find_last_not_of(" \t");
    return std::all_of(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(end + 1),
                       [&](char c) { return c == mark || (blanks_between && is_blank(c)); });
}

bool is_thematic_break(std::string_view ink) {
    const char c = ink[0];
    return (c == '-' || c == '*' || c == '_') && only(ink, c, true) && std::count(ink.begin(), ink.end(), c) >= 3;
}

bool is_heading(std::string_view ink) {
    const std::size_t level = std::min(ink.find_first_not_of('#'), ink.size());
    return level >= 1 && level <= 6 && (level == ink.size() || is_blank(ink[level]));
}

// Length of a list marker, `-` or `12.`; 0: none.
std::size_t list_marker(std::string_view ink) {
    std::size_t length = 0;
    if (ink[0] == '-' || ink[0] == '*' || ink[0] == '+') {
        length = 1;
    } else {
        while (length < ink.size() && length < 9 && is_digit(ink[length])) ++length;
        if (length == 0 || length == ink.size() || (ink[length] != '.' && ink[length] != ')')) return 0;
        ++length;
    }
    return length == ink.size() || is_blank(ink[length]) ? length : 0;
}

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
    const bool section = (level == 1 || level == 2) && (level == line.size() || is_blank(line[level]));
    return section ? line : std::string_view();
}

// Level 3, the word "Iteration" in any case, misplaced blanks: meant as an entry.
bool looks_like_entry(std::string_view line) {
    if (!line.starts_with("###") || line.starts_with("####")) return false;
    const std::string_view rest = text::trim(line.substr(3));
    constexpr std::string_view word = "iteration";
    if (rest.size() <= word.size() || text::to_lower(rest.substr(0, word.size())) != word) return false;
    const std::string_view after = text::trim(rest.substr(word.size()));
    return line.starts_with(k_heading) || (!after.empty() && is_digit(after[0]));
}

bool is_dated_heading(std::string_view line) {
    return line.size() >= 13 && line.starts_with("## ") && is_date(line.substr(3, 10));
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
        if (const auto head = match_heading(line)) {
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

constexpr std::string_view k_numbered = "### Experiment ";

// `## 2026-02-13 - Name`
bool match_entry(const Line& line, ExperimentEntry& entry) {
    const std::string_view s = line.text;
    if (s.size() < 17 || !s.starts_with("## ") || !is_date(s.substr(3, 10)) || s.substr(13, 3) != " - ") {
        return false;
    }
    entry.date = s.substr(3, 10);
    entry.name = text::trim(s.substr(16));
    entry.heading = line;
    return !entry.name.empty();
}

// `### Experiment 3 - Title`
bool match_numbered(const Line& line, NumberedExperiment& experiment) {
    if (!line.text.starts_with(k_numbered)) return false;
    const std::string_view rest = line.text.substr(k_numbered.size());
    std::size_t digits = 0;
    while (digits < rest.size() && is_digit(rest[digits])) ++digits;
    if (digits == 0 || digits > 18) return false;
    experiment.number = text::parse_int(strip_zeros(rest.substr(0, digits))).value_or(0);
    std::string_view title = text::trim(rest.substr(digits));
    if (title.starts_with("-")) title = text::trim(title.substr(1));
    experiment.title = title;
    experiment.heading = line;
    return true;
}

class Reader {
public:
    std::vector<ExperimentEntry> read(std::string_view text) {
        LineCursor cursor(text);
        BlockTracker tracker;
        Line line;
        while (cursor.next(line)) {
            if (tracker.inside(line.text)) continue;
            if (const std::string_view heading = tracker.underlined().first; !heading.empty()) close(heading.data());
            if (!line.text.starts_with('#')) continue;
            const std::size_t level = std::min(line.text.find_first_not_of('#'), line.text.size());
            if (level <= 2) {
                close(line.text.data());
                ExperimentEntry entry;
                m_open = match_entry(line, entry);
                m_open = m_open && m_entries.size() < k_max_entries;
                if (m_open) m_entries.push_back(std::move(entry));
            } else if (level == 3 && m_open) {
                add_part(line, cursor.rest().data());
            }
        }
        close(text.data() + text.size());
        return std::move(m_entries);
    }

private:
    static std::string_view span(const char* begin, const char* end) {
        return {begin, static_cast<std::size_t>(end - begin)};
    }

    void end_part(const char* end) {
        if (m_body == nullptr) return;
        ExperimentEntry& entry = m_entries.back();
        if (end < m_body) {  // `###x`, underlined: a heading of the document, not a part
            m_in_numbered ? entry.numbered.pop_back() : entry.sections.pop_back();
        } else {
            (m_in_numbered ? entry.numbered.back().body : entry.sections.back().body) = span(m_body, end);
        }
        m_body = nullptr;
    }

    void close(const char* end) {
        if (!m_open) return;
        end_part(end);
        ExperimentEntry& entry = m_entries.back();
        entry.text = span(entry.heading.text.data(), end);
        m_open = false;
    }

    void add_part(const Line& line, const char* body) {
        if (++m_parts > k_max_entries) return;
        end_part(line.text.data());
        ExperimentEntry& entry = m_entries.back();
        NumberedExperiment experiment;
        m_in_numbered = match_numbered(line, experiment);
        if (m_in_numbered) {
            entry.numbered.push_back(experiment);
        } else {
            entry.sections.push_back({text::trim(line.text.substr(3)), {}, line});
        }
        m_body = body;
    }

    std::vector<ExperimentEntry> m_entries;
    std::size_t m_parts = 0;
    bool m_open = false;
    bool m_in_numbered = false;
    const char* m_body = nullptr;
};

}  // namespace

std::string_view BlockTracker::open_name() const {
    return m_open == Block::fence ? "code fence" : m_open == Block::comment ? "HTML comment" : "raw HTML block";
}

bool BlockTracker::goes_on(std::string_view ink) {
    switch (m_open) {
        case Block::none: return false;
        case Block::fence: {
            const std::size_t run = std::min(ink.find_first_not_of(m_fence), ink.size());
            return run < m_fence_length || ink.find_first_not_of(" \t", run) != std::string_view::npos;
        }
        case Block::comment: return ink.find("-->") == std::string_view::npos;
        case Block::raw: return !closes_raw(ink);
    }
    return false;
}

// The block that a line opens without closing it.
BlockTracker::Block BlockTracker::opened_by(std::string_view ink) {
    if (ink.starts_with("<!--")) {
        m_commented = true;
        return ink.find("-->", 2) == std::string_view::npos ? Block::comment : Block::none;
    }
    if (ink.starts_with('<') && opens_raw(ink)) {
        m_commented = true;
        return closes_raw(ink) ? Block::none : Block::raw;
    }
    if (!ink.starts_with('`') && !ink.starts_with('~')) return Block::none;
    const std::size_t run = std::min(ink.find_first_not_of(ink[0]), ink.size());
    // An info string with a backtick is inline code, not a fence.
    if (run < 3 || (ink[0] == '`' && ink.find('`', run) != std::string_view::npos)) return Block::none;
    m_fence = ink[0];
    m_fence_length = run;
    return Block::fence;
}

void BlockTracker::open_block(Block block, std::uint32_t container) {
    m_open = block;
    m_container = container;
    m_in_paragraph = false;
    m_paragraph = {};
}

void BlockTracker::leave_lists(std::uint32_t indent) {
    while (!m_list.empty() && m_list.back() > indent) m_list.pop_back();
}

void BlockTracker::add_item(std::string_view ink, std::size_t marker, std::uint32_t indent) {
    leave_lists(indent);
    const std::size_t begin = std::min(ink.find_first_not_of(" \t", marker), ink.size());
    const std::size_t blanks = begin == ink.size() || begin - marker > 4 ? 1 : begin - marker;
    m_list.push_back(indent + static_cast<std::uint32_t>(marker + blanks));
    m_paragraph = {};
    m_in_paragraph = begin < ink.size();
    if (begin == ink.size()) return;
    const Block block = opened_by(ink.substr(begin));
    m_commented = false;  // the line itself is a bullet
    if (block != Block::none) open_block(block, m_list.back());
}

void BlockTracker::add_text(std::string_view line, std::uint32_t indent) {
    if (!m_in_paragraph) {
        leave_lists(indent);
        m_in_paragraph = true;
        if (m_list.empty() && indent < 4) m_paragraph = {line, 0};
    }
    if (!m_paragraph.first.empty()) ++m_paragraph.lines;
}

bool BlockTracker::inside(std::string_view line) {
    std::size_t at = 0;
    std::uint32_t indent = 0;
    for (; at < line.size() && is_blank(line[at]); ++at) indent += line[at] == '\t' ? 4 : 1;
    const std::string_view ink = line.substr(at);
    m_underlined = {};
    if (m_open != Block::none && (ink.empty() || indent >= m_container)) {
        m_commented = m_open != Block::fence;
        if (!goes_on(ink)) m_open = Block::none;
        return true;
    }
    m_open = Block::none;
    m_commented = false;
    if (ink.empty()) {
        m_in_paragraph = false;
        m_paragraph = {};
        return false;
    }
    const bool underline = (ink[0] == '=' || ink[0] == '-') && only(ink, ink[0], false);
    if (underline && indent < 4 && !m_paragraph.first.empty()) {
        m_underlined = m_paragraph;
        m_in_paragraph = false;
        m_paragraph = {};
        return false;
    }
    if (is_thematic_break(ink) || is_heading(ink)) {
        leave_lists(indent);
        m_in_paragraph = false;
        m_paragraph = {};
        return false;
    }
    // Only a list that starts at 1 can interrupt a paragraph.
    const std::size_t marker = list_marker(ink);
    const bool number = marker > 1 && !m_paragraph.first.empty() && (marker != 2 || ink[0] != '1');
    if (marker != 0 && !number) {
        add_item(ink, marker, indent);
        return false;
    }
    if (const Block block = opened_by(ink); block != Block::none) {
        leave_lists(indent);
        // Code is often pasted with less indentation than its fence, so only the closing fence ends it.
        open_block(block, block == Block::fence || m_list.empty() ? 0 : m_list.back());
        return true;
    }
    if (ink[0] == '<' || ink[0] == '>') {
        leave_lists(indent);
        m_in_paragraph = !m_commented;
        m_paragraph = {};
        return false;
    }
    add_text(line, indent);
    return false;
}

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

const ExperimentSection* ExperimentEntry::section(std::string_view wanted_name) const {
    const auto plain = [](std::string_view s) {
        std::string lower_case = text::to_lower(s);
        return lower_case == "breakthrough / insight" ? std::string("breakthrough") : lower_case;
    };
    for (const ExperimentSection& s : sections) {
        if (plain(s.name) == plain(wanted_name)) return &s;
    }
    return nullptr;
}

std::vector<ExperimentEntry> parse_experiments(const Document& document) { return Reader().read(document.text); }

}  // namespace gdnctl::runlog
