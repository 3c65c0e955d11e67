// What an import infers from a hand-written entry beyond its fields.
#include "runlog/import/import.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "runlog/parse/block.h"
#include "runlog/parse/detail.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"
#include "runlog/render/render.h"

namespace gdnctl::runlog::detail {

// Confidence of a reading.
inline constexpr double k_exact = 1.0;
inline constexpr double k_by_wording = 0.8;
inline constexpr double k_guess = 0.5;

// Maps the wording of real logs to decision and outcome of a record.
struct Ruling {
    std::string_view decision, outcome;
    double confidence = k_guess;
};

// Finds the command of each test result in an entry: on the result's line, in an enclosing bullet, or in an earlier
// bullet of the same or an enclosing group. If a run of commands is followed by equally many results, they match in
// order.
class CheckCommands {
public:
    explicit CheckCommands(const Entry& entry);      // `entry` must outlive this
    std::string of(const TestCounts& counts) const;  // empty: no command is given

private:
    struct Event {
        std::uint32_t line;
        std::int32_t field;  // of a command: index of its bullet; -1: a result
        std::string command;
        bool complete;  // a result with its command on the same line
    };
    bool counts_for(const Event& command, std::int32_t result) const;

    const Entry& m_entry;
    std::vector<Event> m_events;  // in line order
};

// The text of a bullet with everything below it, on one line; "; " separates list items.
std::string text_of(const Entry& entry, std::int32_t index);

namespace {

struct Word {
    std::string_view word, decision, outcome;
};

// The first one that occurs wins: an entry that was "validated, rejected, and reverted" was rejected.
constexpr std::array<Word, 18> k_assessments = {{{"infra-blocked", "infra-blocked", "infra"},
                                                 {"profile-blocked", "profile-blocked", "infra"},
                                                 {"compile-blocked", "compile-blocked", "compile"},
                                                 {"rejected", "rejected", "rejected"},
                                                 {"low-impact", "low-impact", "rejected"},
                                                 {"regression", "regression", "rejected"},
                                                 {"regressed", "regression", "rejected"},
                                                 {"reverted", "reverted", "rejected"},
                                                 {"failed attempt", "rejected", "rejected"},
                                                 {"attribution-only", "attribution-only", "no-op"},
                                                 {"probe-only", "probe-only", "no-op"},
                                                 {"ablation-only", "ablation-only", "no-op"},
                                                 {"diagnostic lead", "diagnostic lead", "no-op"},
                                                 {"measurement-only", "none", "no-op"},
                                                 {"promoted", "promoted", "accepted"},
                                                 {"accepted", "accepted", "accepted"},
                                                 {"improved", "accepted", "accepted"},
                                                 {"within threshold", "within_threshold", "accepted"}}};

// In running text, many words may refer to another iteration; only these are clear enough.
constexpr std::array<Word, 8> k_anywhere = {{{"infra-blocked", "infra-blocked", "infra"},
                                             {"profile-blocked", "profile-blocked", "infra"},
                                             {"compile-blocked", "compile-blocked", "compile"},
                                             {"attribution-only", "attribution-only", "no-op"},
                                             {"promoted", "promoted", "accepted"},
                                             {"within threshold", "within_threshold", "accepted"},
                                             {"low-impact", "low-impact", "rejected"},
                                             {"regressed", "regression", "rejected"}}};

// Whether a word occurs without "not" before it.
bool says(std::string_view text, std::string_view word) {
    for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
        const std::string_view before = text.substr(0, at);
        const std::size_t end = at + word.size();
        const bool bounded = (at == 0 || !is_word(before.back())) && (end == text.size() || !is_word(text[end]));
        const bool denied = before.ends_with("not ") || before.ends_with("never ") || before.ends_with("no ");
        if (bounded && !denied) return true;
    }
    return false;
}

template <class Words>
std::optional<Ruling> ruling_in(std::string_view text, const Words& words, double confidence) {
    const std::string lower_case = text::to_lower(text);
    for (const Word& word : words) {
        if (says(lower_case, word.word)) return Ruling{word.decision, word.outcome, confidence};
    }
    return std::nullopt;
}

// "**validated, rejected**. The step got slower", "**validated**, **rejected**: it got slower" -> "validated, rejected"
std::string lead_of(std::string_view text) {
    text = text::trim(text);
    std::string bold;
    while (text.starts_with("**")) {
        const std::size_t end = text.find("**", 2);
        if (end == std::string_view::npos) break;
        bold += (bold.empty() ? "" : ", ") + std::string(text.substr(2, end - 2));
        text.remove_prefix(end + 2);
        const std::size_t next = text.find("**");
        const std::string between = text::to_lower(text::trim(text.substr(0, next)));
        constexpr std::array<std::string_view, 8> k_joints = {"", ",", "/", "+", "&", "and", ", and", "but"};
        if (std::find(k_joints.begin(), k_joints.end(), between) == k_joints.end()) break;
        text.remove_prefix(next == std::string_view::npos ? text.size() : next);
    }
    for (const std::string_view end : {". ", "; ", ": ", " - ", "\xE2\x80\x94", "\n"})
        text = text.substr(0, text.find(end));
    // "**validated**, rejected": the bold words are only the beginning of the phrase.
    if (bold.empty()) return std::string(text);
    const bool goes_on = text.starts_with(",") || text.starts_with(" ");
    return goes_on && !text::to_lower(text).starts_with(", not ") ? bold + std::string(text) : bold;
}

}  // namespace

// Looks at the words of the decision field, else of the assessment, of the parenthesis in the title, of the whole
// entry.
std::optional<Ruling> ruling_of(const Entry& entry, std::string_view decision) {
    if (!decision.empty()) return ruling_in(decision, k_assessments, k_by_wording);
    for (std::size_t i = 0; i < entry.fields.size(); ++i) {
        if (!label_is(entry.fields[i].label, "assessment")) continue;
        const std::string text = text_of(entry, static_cast<std::int32_t>(i));
        if (const auto ruling = ruling_in(lead_of(text), k_assessments, k_by_wording)) return ruling;
    }
    const std::size_t open = entry.head.title.rfind('(');
    if (entry.head.title.ends_with(')') && open != std::string_view::npos) {
        const std::string_view last = entry.head.title.substr(open);
        if (const auto ruling = ruling_in(last, k_assessments, k_guess)) return ruling;
    }
    auto ruling = ruling_in(entry.head.text, k_anywhere, k_guess);
    // Nothing was accepted without a commit: the word refers to the champion at that time.
    if (ruling && ruling->outcome == "accepted" && entry.commit_value.kind == CommitKind::none) ruling.reset();
    return ruling;
}

namespace {

// The text after the number in "1. text" or "2) text"; empty: not such an item.
std::string_view numbered_item(std::string_view words) {
    std::size_t digits = 0;
    while (digits < words.size() && digits < 3 && is_digit(words[digits])) ++digits;
    if (digits == 0 || digits + 1 >= words.size() || !is_blank(words[digits + 1])) return {};
    return words[digits] == '.' || words[digits] == ')' ? text::trim(words.substr(digits + 1)) : std::string_view();
}

}  // namespace

// Appends an item; each item ends with punctuation of its own, or else with `mark`.
void add_item(std::string& text, std::string_view item, std::string_view mark) {
    if (item.empty()) return;
    if (!text.empty()) {
        const std::string_view words = strip_marks(text);
        const bool ended = !words.empty() && std::string_view(".,;:!?").find(words.back()) != std::string_view::npos;
        text += ended ? " " : mark;
    }
    text += item;
}

std::string text_of(const Entry& entry, std::int32_t index) {
    const Field& field = *entry.field(index);
    std::string text(field.value);
    std::string_view mark = ": ";  // separates a text from the list below it
    bool gap = false;
    BlockTracker tracker;
    Line line;
    for (LineCursor cursor(field.body); cursor.next(line);) {
        const bool inside = tracker.inside(line.text);
        const std::string_view words = text::trim(line.text);
        if (words.starts_with("<!-- gdnctl:")) break;
        if (tracker.commented() || !has_text(line.text) || words.starts_with("~~~")) {
            gap = gap || words.empty();
            continue;
        }
        const auto bullet = inside ? std::nullopt : match_bullet(line.text);
        const std::string_view item = bullet ? bullet->content : inside ? std::string_view() : numbered_item(words);
        if (!item.empty()) {
            add_item(text, item, mark);
            mark = "; ";
        } else if (words.starts_with("```")) {
            continue;
        } else if (gap && !is_blank(line.text[0])) {
            break;  // a paragraph of the entry, not of the field
        } else {
            add_item(text, words, " ");
        }
        gap = false;
    }
    return text;
}

// The text below a heading (an index into `verbatim`), up to the next heading or a bullet with a known label.
std::string text_below(const Entry& entry, std::size_t heading, bool (*is_known)(std::string_view)) {
    const std::uint32_t first = entry.verbatim[heading].number;
    std::uint32_t end = static_cast<std::uint32_t>(-1);
    std::string text;
    for (std::size_t i = heading + 1; i < entry.verbatim.size(); ++i) {
        const Line& line = entry.verbatim[i];
        if (line.text.starts_with('#')) {
            end = line.number;
            break;
        }
        const bool part_of_bullet = is_blank(line.text[0]) || line.text.starts_with('<');
        if (!part_of_bullet) add_item(text, text::trim(line.text), " ");
    }
    for (std::size_t i = 0; i < entry.fields.size(); ++i) {
        const Field& field = entry.fields[i];
        if (field.number < first || field.number > end || field.parent >= 0) continue;
        if (is_known(field.label)) break;
        const std::string rest = text_of(entry, static_cast<std::int32_t>(i));
        add_item(text, field.label.empty() ? rest : std::string(field.label) + ": " + rest, "; ");
    }
    return text;
}

// Finds the command that each line of test results belongs to.

namespace {

constexpr std::size_t k_most_events_back = 1000;

bool is_code(std::string_view text) {
    return text.size() > 2 && text.front() == '`' && text.find('`', 1) == text.size() - 1;
}

std::string without_code_marks(std::string_view text) {
    text = text::trim(text);
    return std::string(is_code(text) ? text.substr(1, text.size() - 2) : text);
}

bool has_counts(std::string_view line) {
    const TestCounts counts = read_test_counts(line);
    return counts.any() || !counts.verdict.empty();
}

// "- `uv run pytest` -> `49 passed`", "- command + result: `uv run pytest` -> `49 passed`"
std::string code_before_arrow(std::string_view line) {
    for (std::size_t begin = line.find('`'); begin != std::string_view::npos;) {
        const std::size_t end = line.find('`', begin + 1);
        if (end == std::string_view::npos) return {};
        if (arrow_length(line, skip_soft(line, end + 1)) != 0)
            return std::string(line.substr(begin + 1, end - begin - 1));
        begin = line.find('`', end + 1);
    }
    return {};
}

// "`uv run pytest`: `49 passed`", "Correctness checks (`uv run pytest`): 49 passed"
std::string code_before_colon(std::string_view content) {
    std::size_t begin = content.starts_with('`') ? 0 : content.find("(`");
    if (begin == std::string_view::npos) return {};
    const bool in_parenthesis = content[begin] == '(';
    begin += in_parenthesis ? 2 : 1;
    const std::size_t end = content.find('`', begin);
    if (end == std::string_view::npos) return {};
    const std::string_view rest = content.substr(end + 1);
    if (!rest.starts_with(in_parenthesis ? "):" : ":") || !has_counts(rest)) return {};
    return std::string(content.substr(begin, end - begin));
}

// "pytest a.py -> 14 passed": a command that is not marked as code must start like one.
std::string words_before_arrow(std::string_view content) {
    constexpr std::array<std::string_view, 8> k_programs = {"uv", "pytest", "python", "python3",
                                                            "sh", "bash",   "gdnctl", "ray"};
    std::size_t at = 0;
    while (at < content.size() && arrow_length(content, at) == 0) ++at;
    if (at == content.size()) return {};
    std::string_view words = content.substr(0, at);
    if (words.find('`') != std::string_view::npos) return {};
    if (const auto labelled = split_label(words)) words = labelled->value;
    words = text::trim(words);
    const std::string_view first = words.substr(0, words.find(' '));
    const bool program = std::find(k_programs.begin(), k_programs.end(), first) != k_programs.end();
    return program || first.starts_with("./") ? std::string(words) : std::string();
}

std::string command_on_line(std::string_view line) {
    if (std::string command = code_before_arrow(line); !command.empty()) return command;
    const auto bullet = match_bullet(line);
    if (!bullet) return {};
    if (std::string command = code_before_colon(bullet->content); !command.empty()) return command;
    return words_before_arrow(bullet->content);
}

// The text below a bullet, up to its first nested bullet: a wrapped command, or one in a fence.
std::string command_below(const Field& field) {
    std::string text;
    BlockTracker tracker;
    Line line;
    for (LineCursor cursor(field.body); cursor.next(line);) {
        const bool inside = tracker.inside(line.text);
        std::string_view words = text::trim(line.text);
        if (words.starts_with("<!-- gdnctl:") || (!inside && match_bullet(line.text))) break;
        if (words.empty() || words.starts_with("```") || words.starts_with("~~~") || tracker.commented()) continue;
        if (!inside && has_counts(line.text)) break;
        if (words.starts_with("$ ")) words.remove_prefix(2);
        const bool goes_on = text.ends_with('\\');
        if (goes_on) text = std::string(text::trim(std::string_view(text).substr(0, text.size() - 1)));
        text += text.empty() ? "" : inside && !goes_on ? "; " : " ";
        text += words;
    }
    return text;
}

bool is_result(const Field& field) {
    return label_is(field.label, "result") || label_is(field.label, "results") ||
           label_is(field.label, "final result") || has_counts(field.line);
}

bool heads_commands(const Field& field) {
    return label_is(field.label, "command") || label_is(field.label, "commands");
}

// The command in a bullet; empty: none.
std::string command_of(const Entry& entry, const Field& field) {
    if (heads_commands(field)) {
        if (field.value.empty()) return without_code_marks(command_below(field));
        const bool wrapped = std::count(field.value.begin(), field.value.end(), '`') % 2 != 0;
        return without_code_marks(wrapped ? std::string(field.value) + " " + command_below(field)
                                          : std::string(field.value));
    }
    const auto bullet = match_bullet(field.line);
    if (!bullet || is_result(field)) return {};
    std::string_view content = bullet->content;
    if (content.ends_with(':')) content = text::trim(content.substr(0, content.size() - 1));
    const bool listed =
        field.parent >= 0 && heads_commands(*entry.field(field.parent)) && entry.field(field.parent)->value.empty();
    return is_code(content) || listed ? without_code_marks(content) : std::string();
}

}  // namespace

CheckCommands::CheckCommands(const Entry& entry) : m_entry(entry) {
    auto counts = entry.tests.begin();
    const auto add_counts_before = [&](std::uint32_t line) {
        for (; counts != entry.tests.end() && counts->number < line; ++counts) {
            if (m_events.empty() || m_events.back().line != counts->number)
                m_events.push_back({counts->number, -1, {}, false});
        }
    };
    for (std::size_t i = 0; i < entry.fields.size(); ++i) {
        const Field& field = entry.fields[i];
        add_counts_before(field.number);
        if (!command_on_line(field.line).empty() && has_counts(field.line)) {
            m_events.push_back({field.number, -1, {}, true});
        } else if (std::string command = command_of(entry, field); !command.empty()) {
            const bool listed = field.parent >= 0 && heads_commands(*entry.field(field.parent));
            const auto from = listed ? field.parent : static_cast<std::int32_t>(i);
            m_events.push_back({field.number, from, std::move(command), false});
        } else if (is_result(field)) {
            // Its counts may be below it.
            const bool own = has_counts(field.line) || !has_text(field.body);
            if (own) m_events.push_back({field.number, -1, {}, false});
        }
    }
    add_counts_before(static_cast<std::uint32_t>(-1));
}

// A command applies to the bullets below it, and to later bullets in the same group or nested in it.
bool CheckCommands::counts_for(const Event& command, std::int32_t result) const {
    const std::int32_t group = m_entry.field(command.field)->parent;
    for (std::int32_t at = result; at >= 0; at = m_entry.field(at)->parent) {
        if (at == command.field || (group >= 0 && m_entry.field(at)->parent == group)) return true;
    }
    return false;
}

std::string CheckCommands::of(const TestCounts& counts) const {
    if (std::string command = command_on_line(counts.line); !command.empty()) return command;
    const std::vector<Field>& fields = m_entry.fields;
    const auto next = std::upper_bound(fields.begin(), fields.end(), counts.number,
                                       [](std::uint32_t number, const Field& field) { return number < field.number; });
    const auto result = static_cast<std::int32_t>(next - fields.begin()) - 1;
    const auto own =
        std::find_if(m_events.begin(), m_events.end(), [&](const Event& event) { return event.line == counts.number; });
    if (result < 0 || own == m_events.end()) return {};

    // The last run of commands before the result.
    std::vector<const Event*> commands;
    std::size_t number = 0;  // position of this result among those after that run
    const auto at = static_cast<std::size_t>(own - m_events.begin());
    for (std::size_t i = at; i > 0 && at - i < k_most_events_back; --i) {
        const Event& event = m_events[i - 1];
        if (event.complete) break;
        if (event.field < 0) {
            if (!commands.empty()) break;
            ++number;
        } else if (counts_for(event, result)) {
            commands.push_back(&event);
        }
    }
    if (commands.empty()) return {};
    std::reverse(commands.begin(), commands.end());
    std::size_t results = number + 1;
    for (std::size_t i = at + 1; i < m_events.size() && m_events[i].field < 0 && !m_events[i].complete; ++i) ++results;
    if (commands.size() == 1 || results == 1) return commands.back()->command;
    return results == commands.size() ? commands[number]->command : std::string();
}

}  // namespace gdnctl::runlog::detail

namespace gdnctl::runlog {

// Turns one hand-written entry into one record.

namespace {

using detail::k_by_wording, detail::k_exact, detail::k_guess;

// Labels whose value is a single text of the record.
struct TextLabel {
    std::string_view label;  // normalised
    std::string_view pointer;
    double confidence;
    bool prose = false;  // may continue below the bullet
};
constexpr std::array<TextLabel, 16> k_texts = {{{"hypothesis", "/idea/hypothesis", k_exact, true},
                                                {"selected hypothesis", "/idea/hypothesis", k_exact, true},
                                                {"selected macro move category", "/idea/move", k_exact},
                                                {"coverage slot", "/coverage_slot", k_exact},
                                                {"change class", "/change_class", k_exact},
                                                {"decision", "/decision", k_exact},
                                                {"assessment", "/assessment", k_exact, true},
                                                {"next hypothesis", "/next_hypothesis", k_exact, true},
                                                {"next bold hypothesis", "/next_hypothesis", k_exact, true},
                                                {"next hypotheses", "/next_hypothesis", k_exact, true},
                                                {"next bold hypotheses", "/next_hypothesis", k_exact, true},
                                                {"starting commit", "/base/commit", k_exact},
                                                {"started", "/started_at", k_exact},
                                                {"finished", "/finished_at", k_exact},
                                                {"run id", "/loop/run_id", k_exact},
                                                {"outcome", "/outcome", k_by_wording}}};

std::string inside_marks(std::string_view value) { return std::string(strip_marks(value)); }

class Importer {
public:
    explicit Importer(const EntryHead& head)
        : m_entry(parse_entry(head)), m_iteration{head.number, std::string(head.suffix)} {}

    Json run() {
        const Field* date = m_entry.field(m_entry.date);
        const std::string written = date != nullptr ? inside_marks(date->value) : std::string();
        const auto time = parse_iso8601(written);
        m_record = empty_record("import", m_iteration, time.value_or(WallTime{}));
        m_record["id"] = time ? make_record_id(*time, m_iteration) : "import-" + m_iteration.text();
        if (!time) m_record["started_at"] = nullptr;
        m_record["source"] = "import";
        m_record["title"] = std::string(m_entry.head.title);
        m_record["raw"] = {{"heading", std::string(m_entry.head.heading)}, {"digest", entry_digest(m_entry.head.text)}};
        if (!written.empty()) m_record["raw"]["date"] = written;
        if (time) sure("started_at", k_exact);
        commit();
        for (std::size_t i = 0; i < m_entry.fields.size(); ++i) {
            if (m_entry.fields[i].parent < 0) top_level(m_entry.fields[i], static_cast<std::int32_t>(i));
        }
        headed_texts();
        if (m_record["checks"].empty()) nested_checks();
        m_record["raw"]["fields"] = std::move(m_kept);
        lines();
        metrics();
        verdict();
        m_record["confidence"] = std::move(m_confidence);
        return std::move(m_record);
    }

private:
    void sure(std::string_view field, double confidence) { m_confidence[std::string(field)] = confidence; }

    void keep(const Field& field) {
        std::string text(field.line);
        LineCursor cursor(field.body);
        Line line;
        std::string body;
        while (cursor.next(line)) {
            if (line.text.starts_with("<!-- gdnctl:")) break;
            body += '\n';
            body += line.text;
        }
        while (!body.empty() && (body.back() == '\n' || body.back() == ' ')) body.pop_back();
        m_kept.push_back(text + body);
    }

    void commit() {
        const CommitValue& value = m_entry.commit_value;
        const char* status = nullptr;
        switch (value.kind) {
            case CommitKind::missing: return;
            case CommitKind::committed:
                status = "committed";
                m_record["commits"].push_back(std::string(value.sha));
                break;
            case CommitKind::none:
                status = "none";
                if (!value.reason.empty()) m_record["commit_reason"] = std::string(value.reason);
                break;
            case CommitKind::self: status = "self"; break;
            case CommitKind::pending: status = "pending"; break;
            case CommitKind::other:
                status = "other";
                m_record["commit_reason"] = std::string(value.text);
                break;
        }
        m_record["commit_status"] = status;
        sure("commit_status", value.kind == CommitKind::other ? k_guess : k_exact);
    }

    // Every line of the field can be stored: nothing is nested that the record has no field for.
    bool plain(const Field& field) const { return !detail::has_text(field.body); }

    void top_level(const Field& field, std::int32_t index) {
        if (index == m_entry.date || index == m_entry.commit) {
            if (!plain(field)) keep(field);
            return;
        }
        // "Next bold hypothesis (escalation)"
        const std::string label = normalise_label(field.label.substr(0, field.label.find('(')));
        for (const TextLabel& known : k_texts) {
            if (label == known.label && take_text(known, field, index)) return;
        }
        if (label == "codex loop iteration" && take_loop(field)) return;
        if (label == "change summary" && take_list("changes", field, index)) return;
        if (label == "interpretation" && take_list("interpretation", field, index)) return;
        if (detail::label_is(field.label, "correctness", true)) checks(field);
        if (detail::label_is(field.label, "profile run", true) || detail::label_is(field.label, "profile runs", true)) {
            profile(index);
        }
        keep(field);
    }

    bool take_text(const TextLabel& known, const Field& field, std::int32_t index) {
        if (!plain(field) && !known.prose) return false;
        const std::string text = detail::text_of(m_entry, index);
        const std::string value = inside_marks(text);
        const Json::json_pointer at{std::string(known.pointer)};
        if (value.empty() || !m_record[at].is_null()) return false;  // the first occurrence counts
        if ((known.pointer == "/started_at" || known.pointer == "/finished_at") && !parse_iso8601(value)) return false;
        m_record[at] = known.prose ? text : value;
        sure(known.pointer.substr(1), known.confidence);
        if (plain(field)) return true;
        const std::string name(known.pointer.substr(known.pointer.rfind('/') + 1));
        m_record["raw"][name + "_in_fields"] = true;  // the lines are kept as they are
        return false;
    }

    // "#### Next bold hypothesis" above bullets or a paragraph. The lines are also kept as they are.
    void headed_texts() {
        for (std::size_t i = 0; i < m_entry.verbatim.size(); ++i) {
            const Line& heading = m_entry.verbatim[i];
            if (!heading.text.starts_with('#')) continue;
            std::string_view words = text::trim(heading.text.substr(heading.text.find_first_not_of('#')));
            if (words.ends_with(':')) words.remove_suffix(1);
            const std::string label = normalise_label(words.substr(0, words.find('(')));
            for (const TextLabel& known : k_texts) {
                const Json::json_pointer at{std::string(known.pointer)};
                if (label != known.label || !known.prose || !m_record[at].is_null()) continue;
                const std::string text = detail::text_below(m_entry, i, is_known);
                if (text.empty()) continue;
                m_record[at] = text;
                sure(known.pointer.substr(1), k_by_wording);
            }
        }
    }

    static bool is_known(std::string_view label) {
        const std::string name = normalise_label(label.substr(0, label.find('(')));
        const auto same = [&](const TextLabel& one) { return one.label == name; };
        return name == "date" || name == "commit" || std::any_of(k_texts.begin(), k_texts.end(), same);
    }

    // Numbers must stay where the parser looks for them.
    bool has_readings(const Field& field) const {
        const char* end = field.body.data() + field.body.size();
        return std::any_of(m_entry.readings.begin(), m_entry.readings.end(), [&](const Reading& reading) {
            return reading.line.data() >= field.line.data() && reading.line.data() < end;
        });
    }

    // `8 / 10`
    bool take_loop(const Field& field) {
        const std::string value = inside_marks(field.value);
        const auto slash = value.find('/');
        if (slash == std::string::npos || !plain(field)) return false;
        const auto index = text::parse_int(text::trim(std::string_view(value).substr(0, slash)));
        const auto total = text::parse_int(text::trim(std::string_view(value).substr(slash + 1)));
        if (!index || !total) return false;
        m_record["loop"]["index"] = *index;
        m_record["loop"]["total"] = *total;
        sure("loop", k_exact);
        return true;
    }

    // A text, or one level of bullets without nested bullets, and nothing else.
    bool take_list(const char* name, const Field& field, std::int32_t index) {
        if (!m_record[name].empty()) return false;
        Json items = Json::array();
        if (!field.value.empty()) items.push_back(std::string(field.value));
        std::size_t lines = 0;
        for (const Field& child : m_entry.fields) {
            if (child.parent != index) continue;
            if (!plain(child)) return false;
            items.push_back(std::string(detail::match_bullet(child.line)->content));
            ++lines;
        }
        std::size_t written = 0;
        LineCursor cursor(field.body);
        Line line;
        while (cursor.next(line)) {
            if (line.text.starts_with("<!-- gdnctl:")) break;
            if (!text::trim(line.text).empty()) ++written;
        }
        if (written != lines || items.empty() || (!field.value.empty() && lines > 0)) return false;
        if (has_readings(field)) return false;
        m_record[name] = std::move(items);
        sure(name, k_exact);
        return true;
    }

    void checks(const Field& field) {
        for (const TestCounts& counts : m_entry.tests) {
            if (counts.line.data() < field.line.data() || counts.line.data() > field.body.data() + field.body.size()) {
                continue;
            }
            const std::string ran = m_commands.of(counts);
            Json check = {{"name", nullptr}, {"command", ran.empty() ? Json() : Json(ran)}, {"exit", nullptr}};
            const auto put = [&](const char* name, const std::optional<std::int64_t>& n) {
                if (n) check[name] = *n;
            };
            put("passed", counts.passed);
            put("failed", counts.failed);
            put("skipped", counts.skipped);
            put("deselected", counts.deselected);
            put("xfailed", counts.xfailed);
            put("xpassed", counts.xpassed);
            put("errors", counts.errors);
            put("warnings", counts.warnings);
            put("rerun", counts.rerun);
            if (!counts.verdict.empty()) check["verdict"] = std::string(counts.verdict);
            m_record["checks"].push_back(std::move(check));
            m_record["raw"]["checks_in_fields"] = true;
            sure("checks", k_exact);
        }
    }

    // "Correctness" in an acceptance checklist, for an entry without a field of its own for it.
    void nested_checks() {
        for (const Field& field : m_entry.fields) {
            const bool nested = field.parent >= 0 && detail::label_is(field.label, "correctness", true);
            if (nested && m_record["checks"].empty()) checks(field);
        }
    }

    void profile(std::int32_t index) {
        Json profile = {{"arm", "candidate"}};
        struct Place {
            std::string_view label;  // normalised
            const char* pointer;
        };
        static constexpr std::array<Place, 12> k_places = {{{"command", "/command"},
                                                            {"job id", "/job_id"},
                                                            {"ray job", "/job_id"},
                                                            {"job/run", "/job_id"},
                                                            {"run", "/run_url"},
                                                            {"w&b run", "/run_url"},
                                                            {"profiler artifact", "/artifact"},
                                                            {"trace location", "/trace/path"},
                                                            {"downloaded trace", "/trace/path"},
                                                            {"output path", "/output"},
                                                            {"failure mode", "/failure"},
                                                            {"cluster", "/cluster"}}};
        bool any = false;
        for (const Field& child : m_entry.fields) {
            if (child.parent != index) continue;
            const std::string label = normalise_label(child.label);
            for (const Place& place : k_places) {
                const std::string value = inside_marks(child.value);
                if (label != normalise_label(place.label) || value.empty()) continue;
                const Json::json_pointer at{std::string(place.pointer)};
                if (profile.contains(at)) continue;
                profile[at] = value;
                any = true;
            }
        }
        if (!any) return;
        m_record["profiles"].push_back(std::move(profile));
        m_record["raw"]["profiles_in_fields"] = true;
        sure("profiles", k_by_wording);
    }

    // Headings and prose between bullets that do not continue a bullet.
    void lines() {
        Json kept = Json::array();
        for (const Line& line : m_entry.verbatim) {
            const bool in_field = std::any_of(m_entry.fields.begin(), m_entry.fields.end(), [&](const Field& field) {
                return line.text.data() >= field.body.data() &&
                       line.text.data() < field.body.data() + field.body.size();
            });
            if (!in_field && !line.text.starts_with("<!-- gdnctl:")) kept.push_back(std::string(line.text));
        }
        if (!kept.empty()) m_record["raw"]["lines"] = std::move(kept);
        Json comments = Json::array();
        for (const Line& line : m_entry.comments) comments.push_back(std::string(line.text));
        if (!comments.empty()) m_record["raw"]["comments"] = std::move(comments);
    }

    // Values of several arms, none of them the candidate's: stored by arm, and not as the iteration's own.
    void arm_values(const Metric& metric) {
        for (const Reading& reading : m_entry.readings) {
            const auto& value = reading.after ? reading.after : reading.before;
            if (reading.key != metric.key || !value || reading.arm.empty()) continue;
            const std::string arm = text::to_lower(reading.arm);
            Json& profiles = m_record["profiles"];
            auto profile = std::find_if(profiles.begin(), profiles.end(),
                                        [&](const Json& known) { return json::text(known, "arm") == arm; });
            if (profile == profiles.end()) {
                profiles.push_back({{"arm", arm}, {"metrics", Json::object()}});
                profile = profiles.end() - 1;
            }
            (*profile)["metrics"][metric.key] = value->value;
        }
        m_record["raw"]["profiles_in_fields"] = true;
        sure("profiles", k_by_wording);
    }

    void metrics() {
        Comparison kind = Comparison::unknown;
        for (const Metric& metric : m_entry.metrics) {
            if (metric.derived) continue;
            if (metric.ambiguous_arm) {
                arm_values(metric);
                continue;
            }
            const bool text = !metric.before_text.empty() || !metric.after_text.empty();
            const auto number = [](const std::optional<double>& n) { return n ? Json(*n) : Json(); };
            Json value = {{"before", text ? Json(std::string(metric.before_text)) : number(metric.before)},
                          {"after", text ? Json(std::string(metric.after_text)) : number(metric.after)},
                          {"source", "import"}};
            if (metric.comparison != Comparison::unknown) {
                value["comparison"] = name_of(metric.comparison);
                if (kind == Comparison::unknown) kind = metric.comparison;
            }
            if (!metric.known && metric.unit == Unit::ms) value["unit"] = "ms";
            if (!metric.known && metric.unit == Unit::fraction) value["unit"] = "fraction";
            const bool known = metric.known && !text;
            m_record[known ? "metrics" : "extra_metrics"][metric.key] = std::move(value);
            sure("metrics." + metric.key, known ? k_exact : k_by_wording);
        }
        for (const TopK& table : m_entry.topk) {
            Json items = Json::array();
            for (const TopK::Item& item : table.items) {
                Json one = {{"path", std::string(item.path)}, {"ms", item.ms}};
                if (item.is_delta) one["delta"] = true;
                items.push_back(std::move(one));
            }
            if (!items.empty()) m_record["topk"][std::string(table.key)] = std::move(items);
        }
        if (!m_entry.readings.empty() || !m_entry.topk.empty()) m_record["raw"]["metrics_in_fields"] = true;
        if (m_entry.readings.empty()) return;
        m_record["comparison"]["kind"] = name_of(kind);
        if (kind != Comparison::unknown) sure("comparison.kind", k_by_wording);
    }

    void verdict() {
        const std::string decision = json::text(m_record, "decision");
        const auto ruling = detail::ruling_of(m_entry, decision);
        if (!ruling) return;
        if (decision.empty()) {
            m_record["decision"] = ruling->decision;
            sure("decision", ruling->confidence);
        }
        if (!m_record["outcome"].is_null()) return;
        m_record["outcome"] = ruling->outcome;
        sure("outcome", ruling->confidence);
    }

    Entry m_entry;
    detail::CheckCommands m_commands{m_entry};
    IterationNumber m_iteration;
    Json m_record;
    Json m_kept = Json::array();
    Json m_confidence = Json::object();
};

}  // namespace

Json import_entry(const EntryHead& head) { return Importer(head).run(); }

Json import_experiment(const ExperimentEntry& entry, std::size_t index) {
    const IterationNumber number{static_cast<std::int64_t>(index), {}};
    const auto date = parse_iso8601(entry.date);
    Json record = empty_record("import", number, date.value_or(WallTime{}));
    record["id"] = date ? make_record_id(*date, number) : "import-" + number.text();
    if (!date) record["started_at"] = nullptr;
    record["kind"] = "experiment";
    record["source"] = "import";
    record["title"] = std::string(entry.name);
    record["raw"] = {{"heading", std::string(entry.heading.text)}, {"digest", entry_digest(entry.text)}};
    Json sections = Json::object();
    for (const ExperimentSection& section : entry.sections) {
        sections[std::string(section.name)] = std::string(text::trim(section.body));
    }
    for (const NumberedExperiment& experiment : entry.numbered) {
        sections[fmt::format("Experiment {} - {}", experiment.number, experiment.title)] =
            std::string(text::trim(experiment.body));
    }
    const auto take = [&](const char* name, const char* pointer) {
        if (const ExperimentSection* section = entry.section(name)) {
            record[Json::json_pointer(pointer)] = std::string(text::trim(section->body));
        }
    };
    take("Hypothesis", "/idea/hypothesis");
    take("Goal", "/idea/title");
    take("Outcome", "/assessment");
    take("Next Step", "/next_hypothesis");
    record["sections"] = std::move(sections);
    record["confidence"] = {{"started_at", date ? 1.0 : 0.0}, {"sections", 1.0}};
    return record;
}

namespace {

const GeneratedBlock* block_of(const std::vector<GeneratedBlock>& blocks, std::string_view heading) {
    for (const GeneratedBlock& block : blocks) {
        if (heading.data() >= block.whole.data() && heading.data() < block.whole.data() + block.whole.size())
            return &block;
    }
    return nullptr;
}

// A copy without absent fields, in memory of exactly the size needed.
Json without_absent(const Json& value) {
    if (!value.is_object()) return value;
    Json kept = Json::object();
    for (const auto& [key, item] : value.items()) {
        if (item.is_null() || (item.is_structured() && item.empty())) continue;
        kept[key] = without_absent(item);
    }
    return kept;
}

class LogImporter {
public:
    LogImporter(std::span<const Json> existing, WallTime now, bool brief) : m_now(now), m_brief(brief) {
        const std::vector<Json> all(existing.begin(), existing.end());
        for (const Json& record : all) m_ids[id_of(record)] = true;
        for (Json& record : current_records(all)) {
            if (is_import(record)) m_known.emplace(key_of(record), std::move(record));
        }
    }

    bool knows(std::string_view id) const { return m_ids.contains(std::string(id)); }

    void add(Json record, Imported& imported) {
        make_public(record);
        const auto [first, last] = m_known.equal_range(key_of(record));
        for (auto it = first; it != last; ++it) {
            if (json::text_at(it->second, "/raw/digest") == json::text_at(record, "/raw/digest")) {
                m_known.erase(it);
                ++imported.unchanged;
                return;
            }
        }
        if (first != last) {  // the entry changed since its import
            Json newer = superseding(first->second, m_now, "the entry changed and was imported again");
            for (const auto& [key, value] : record.items()) {
                if (key != "id" && key != "notes") newer[key] = value;
            }
            m_known.erase(first);
            record = std::move(newer);
        } else {
            const std::string id = id_of(record);
            for (int n = 1; m_ids.contains(id_of(record)); ++n) record["id"] = fmt::format("{}-{}", id, n + 1);
        }
        m_ids[id_of(record)] = true;
        if (m_brief) {
            record.erase("confidence");
            record.erase("raw");
            record = without_absent(record);
        }
        imported.records.push_back(std::move(record));
    }

private:
    static std::string key_of(const Json& record) {
        return is_experiment(record) ? json::text_at(record, "/raw/heading") : iteration_of(record).text();
    }

    WallTime m_now;
    bool m_brief;
    std::map<std::string, bool> m_ids;
    std::multimap<std::string, Json> m_known;  // earlier imports by iteration
};

}  // namespace

Result<Imported> import_log(std::string_view log, std::span<const Json> existing, WallTime now,
                            const ImportOptions& options) {
    GDNCTL_TRY_ASSIGN(const auto document, parse_document(log));
    const auto blocks = find_blocks(document.text);
    LogImporter importer(existing, now, options.brief);
    const auto wanted = [&](std::int64_t number, std::string_view suffix) {
        return !options.only || (options.only->number == number && options.only->suffix == suffix);
    };
    const auto is_rendered = [&](std::string_view heading) {
        const GeneratedBlock* block = block_of(blocks, heading);
        return block != nullptr && !(options.lost && !importer.knows(block->id));
    };
    Imported imported;
    for (const EntryHead& head : document.entries) {
        if (!wanted(head.number, head.suffix)) continue;
        if (is_rendered(head.heading)) {
            ++imported.generated;
        } else {
            importer.add(import_entry(head), imported);
        }
    }
    if (document.kind != Template::experiment) return imported;
    const auto experiments = parse_experiments(document);
    for (std::size_t i = 0; i < experiments.size(); ++i) {
        if (!wanted(static_cast<std::int64_t>(i), {})) continue;
        if (is_rendered(experiments[i].heading.text)) {
            ++imported.generated;
        } else {
            importer.add(import_experiment(experiments[i], i), imported);
        }
    }
    return imported;
}

}  // namespace gdnctl::runlog
