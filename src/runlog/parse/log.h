// The running log as a value: an append-only Markdown file with one entry per loop iteration.
//
// Everything here points into the caller's buffer, which must outlive it. Parsing is pure, linear in the bytes, and
// never fails on content: what the model has no field for is still in Entry::fields and in the text itself. Parsing has
// two steps, so that a long log costs little: parse_document() finds the entries, parse_entry() reads one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/time.h"

namespace gdnctl::runlog {

enum class LineEnding { none, lf, crlf, cr, mixed };
enum class Template { hillclimb, experiment };
enum class TemplateChoice { automatic, hillclimb, experiment };

// One line without its ending (\n, \r\n or a lone \r).
struct Line {
    std::string_view text;
    std::uint32_t number = 0;  // 1-based
};

// Iterates over the lines of a text; `first` is the number of its first line.
class LineCursor {
public:
    explicit LineCursor(std::string_view text, std::uint32_t first = 1) : m_rest(text), m_next(first) {}
    bool next(Line& line);
    // The ending of the line that next() returned last; empty at the end of a file without a final newline.
    std::string_view ending() const { return m_ending; }
    std::string_view rest() const { return m_rest; }

private:
    std::string_view m_rest;
    std::string_view m_ending;
    const char* m_line_feed = nullptr;  // cached position of the next \n, so that a file with only \r stays linear
    std::uint32_t m_next;
};

// Tracks Markdown blocks as far as entries depend on them: which lines are in fenced code or an HTML comment, and which
// paragraph becomes a heading by an underline. Follows CommonMark 0.31; lines must come in order.
class BlockTracker {
public:
    // True for lines of fenced code (``` or ~~~, at least 3, closed by at least as many) and of a multi-line HTML
    // comment or raw HTML block (<pre>, <script>, <style>, <textarea>), including their first and last lines.
    bool inside(std::string_view line);
    // Whether a block that only its own end mark closes is open; a block in a list item ends with the item.
    bool open() const { return m_open != Block::none && m_container == 0; }
    std::string_view open_name() const;  // "code fence", "HTML comment" or "raw HTML block"
    // Whether the last line belongs to an HTML comment or raw HTML, even if that takes a single line.
    bool commented() const { return m_commented; }
    bool in_list() const { return !m_list.empty(); }
    // The paragraph that the last line underlines: its first line and its number of lines; empty text: none.
    struct Paragraph {
        std::string_view first;
        std::uint32_t lines = 0;
    };
    const Paragraph& underlined() const { return m_underlined; }

private:
    enum class Block { none, fence, comment, raw };
    bool goes_on(std::string_view ink);
    Block opened_by(std::string_view ink);
    void open_block(Block block, std::uint32_t container);
    void add_item(std::string_view ink, std::size_t marker, std::uint32_t indent);
    void add_text(std::string_view line, std::uint32_t indent);
    void leave_lists(std::uint32_t indent);

    Block m_open = Block::none;
    char m_fence = 0;
    std::size_t m_fence_length = 0;
    std::uint32_t m_container = 0;      // column where the open block's list item begins; 0: not in a list
    std::vector<std::uint32_t> m_list;  // columns of the open list items
    bool m_commented = false;
    bool m_in_paragraph = false;
    Paragraph m_paragraph;  // outside lists and quotes, since only such a paragraph can be underlined
    Paragraph m_underlined;
};

// One `### Iteration N[letters][ - title]`, up to the next entry, a heading of level 1 or 2 (also underlined ones), or
// the end of the file.
struct EntryHead {
    std::string_view text;     // from the heading line to the end of the entry, with line endings
    std::string_view heading;  // the heading line
    std::uint32_t line = 0;    // of the heading
    std::uint32_t line_count = 0;
    std::int64_t number = 0;
    std::string_view suffix;  // "", "a", "bb"
    std::string_view title;   // text after the separator, trimmed; may be empty
};

struct Document {
    std::string_view bytes;  // the whole file
    std::string_view text;   // without a byte order mark
    bool has_bom = false;
    LineEnding ending = LineEnding::none;
    bool final_newline = false;
    std::uint32_t line_count = 0;
    Template kind = Template::hillclimb;
    std::vector<EntryHead> entries;        // hillclimb only; for experiment logs see ExperimentEntry
    std::vector<Line> malformed_headings;  // lines that (nearly) start with `### Iteration ` but are not an entry
    struct Unclosed {
        Line line;              // the line that opens it
        std::string_view what;  // "code fence", "HTML comment"
    };
    std::optional<Unclosed> unclosed;  // a block that hides the rest of the file

    // Byte offset of a view into `bytes`.
    std::size_t offset(std::string_view part) const { return static_cast<std::size_t>(part.data() - bytes.data()); }
    // "\n", "\r\n" or "\r": the ending for new lines.
    std::string_view newline() const {
        return ending == LineEnding::crlf ? "\r\n" : ending == LineEnding::cr ? "\r" : "\n";
    }
};

inline constexpr std::size_t k_max_file_bytes = 64u << 20;
inline constexpr std::size_t k_max_line_bytes = 1u << 20;
inline constexpr std::size_t k_max_entries = 100'000;

// Errors: usage (file, line or number of entries over the limits above; the message names the limit).
Result<Document> parse_document(std::string_view bytes, TemplateChoice choice = TemplateChoice::automatic);

// A bullet `- label: value` of an entry, outside fenced code. The label may be empty.
struct Field {
    std::string_view line;   // the whole line
    std::string_view label;  // as written, without surrounding backticks and asterisks
    std::string_view value;  // rest of the line, trimmed; backticks kept
    std::string_view body;   // the lines below that belong to it (deeper bullets, continuations)
    std::uint32_t number = 0;
    std::uint32_t indent = 0;  // columns of white space before the bullet
    std::int32_t parent = -1;  // index of the enclosing bullet
};

enum class CommitKind { missing, committed, none, self, pending, other };
struct CommitValue {
    CommitKind kind = CommitKind::missing;
    std::string_view sha;     // if committed: 7 to 40 hex digits, as written
    std::string_view reason;  // if none: the text in the parenthesis
    std::string_view text;    // without backticks, asterisks and trailing period
};
// Classifies the value of a commit bullet.
CommitValue classify_commit(std::string_view value);

// What the two sides of an arrow are. Gates may only use `champion`.
enum class Comparison { unknown, champion, previous, control, ab };
const char* name_of(Comparison kind);
// From the text of a group heading, e.g. "Hotspots observed (current deployable baseline vs candidate)".
Comparison classify_comparison(std::string_view heading);

enum class Unit { none, ms, seconds, fraction };

// A number in its canonical unit (ms; fraction for percentages; seconds for throughput/duration only).
struct Quantity {
    double value = 0;
    double half_digit = 0;  // half a unit of the last printed digit, in the canonical unit
    std::string_view text;  // the digits as written
};

// One occurrence of a metric on one line, before merging.
struct Reading {
    enum class Form { arrow, single, text, absent };
    enum class Spelling { canonical, other };  // canonical: label outside, both values inside one pair of backticks
    std::string key;                           // canonical key ("step_duration_ms"), or the label as written if unknown
    std::string_view label;                    // as written
    bool known = false;
    Form form = Form::single;
    Spelling spelling = Spelling::other;
    Unit unit = Unit::none;
    bool unit_in_name = false;
    bool is_baseline = false;  // a single value under a "carried in" or baseline heading
    std::optional<Quantity> before, after;
    std::string_view before_text, after_text;  // Form::text
    std::optional<Quantity> percent;           // stated change in percentage points, e.g. (`+1.34%`)
    Comparison comparison = Comparison::unknown;
    std::string_view arm;      // name of the group's arm ("Hybrid"), or empty
    std::string_view heading;  // heading of the group, as written
    std::string_view value;    // the parsed text, without backticks
    std::string_view line;
    std::uint32_t number = 0;
};

// What an entry says about one key, after merging all readings.
struct Metric {
    std::string key;
    bool known = false;
    bool derived = false;  // computed, not written
    Unit unit = Unit::none;
    std::optional<double> before, after;
    std::string_view before_text, after_text;
    double half_digit_before = 0, half_digit_after = 0;
    Comparison comparison = Comparison::unknown;
    bool ambiguous_arm = false;  // several arms, none of them the candidate: no values
    std::uint32_t number = 0;    // line of the deciding reading; 0 for derived ones

    std::optional<double> delta() const {
        if (before && after) return *after - *before;
        return std::nullopt;
    }
};

struct TopK {
    struct Item {
        std::string_view path;
        double ms = 0;
        bool is_delta = false;  // written with a sign
    };
    std::string_view key;
    std::vector<Item> items;
    std::uint32_t number = 0;
};

struct TestCounts {
    std::optional<std::int64_t> passed, failed, errors, skipped, deselected, xfailed, xpassed, warnings, rerun;
    std::string_view verdict;  // the word as written: "OK", "WRONG", "FAILED"; empty: none
    std::string_view line;
    std::uint32_t number = 0;
    bool any() const { return passed || failed || errors || skipped; }
    bool said_ok() const { return verdict == "OK"; }
    bool said_bad() const { return !verdict.empty() && !said_ok(); }
};
// All counts of a line such as `1 failed, 87 passed, 2 skipped in 231.29s`, and its verdict (`verdict: WRONG`, `OK`).
TestCounts read_test_counts(std::string_view line);

struct Entry {
    EntryHead head;
    std::vector<Field> fields;   // in file order; at most k_max_fields, any more are only in head.text
    std::vector<Line> verbatim;  // lines outside fences that are neither bullets nor blank (headings, prose, markers)
    std::vector<Line> comments;  // lines of HTML comments, which Markdown does not render
    std::int32_t date = -1, commit = -1, starting_commit = -1;  // index into fields of the first occurrence
    std::vector<std::int32_t> repeated;                         // further occurrences of these three
    CommitValue commit_value;
    std::vector<Reading> readings;
    std::vector<Metric> metrics;  // sorted by key; includes derived ones
    std::vector<TopK> topk;
    std::vector<TestCounts> tests;

    const Field* field(std::int32_t index) const {
        return index < 0 ? nullptr : &fields[static_cast<std::size_t>(index)];
    }
    // The first field with this label (compared without case, backticks, asterisks; a parenthesis after it is allowed).
    const Field* find(std::string_view label) const;
    const Metric* metric(std::string_view key) const;
};

// Per entry. Any more are only in head.text, so that memory stays within a few times the file's size.
inline constexpr std::size_t k_max_fields = 1u << 16;
inline constexpr std::size_t k_max_readings = 1u << 16;
inline constexpr std::size_t k_max_test_lines = 1000;

Entry parse_entry(const EntryHead& head);

// Lower case, without backticks and asterisks, blanks collapsed; `-`, `_` and `/` become blanks.
std::string normalise_label(std::string_view label);
// "Forward closed-call `shard_map/pallas_call`" -> "forward_closed_call_ms"; nullopt: not a known metric.
std::optional<std::string> metric_key(std::string_view label);
// Without surrounding blanks, backticks and asterisks.
std::string_view strip_marks(std::string_view s);

// The second kind of running log: `## YYYY-MM-DD - name` entries with `### Goal` … `### Next Step` sections.

struct ExperimentSection {
    std::string_view name;  // as written ("Breakthrough / Insight")
    std::string_view body;
    Line heading;
};

// `### Experiment <n> - <title>` inside an entry, with its bullets.
struct NumberedExperiment {
    std::int64_t number = 0;
    std::string_view title;
    std::string_view body;
    Line heading;
};

struct ExperimentEntry {
    std::string_view date;  // ten characters of the form YYYY-MM-DD
    std::string_view name;
    std::string_view text;  // from the heading to the end of the entry
    Line heading;
    std::vector<ExperimentSection> sections;
    std::vector<NumberedExperiment> numbered;

    // Treats "Breakthrough" and "Breakthrough / Insight" as the same section; ignores case.
    const ExperimentSection* section(std::string_view wanted_name) const;
};

// In file order. Linear and never fails. The result points into the document's text.
std::vector<ExperimentEntry> parse_experiments(const Document& document);

}  // namespace gdnctl::runlog
