// Finds the command that each line of test results belongs to.
#include <algorithm>
#include <array>

#include "core/text.h"
#include "runlog/import/detail.h"
#include "runlog/metrics/values.h"
#include "runlog/parse/detail.h"

namespace gdnctl::runlog::detail {

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
