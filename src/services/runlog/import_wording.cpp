#include <algorithm>
#include <array>

#include "gdnctl/core/text.h"
#include "services/runlog/import_detail.h"
#include "services/runlog/metrics_values.h"
#include "services/runlog/parse_detail.h"

namespace gdnctl::runlog::detail {

namespace {

struct Word {
    std::string_view word, decision, outcome;
};

// The first that occurs wins: an entry that was "validated, rejected, and reverted" was rejected.
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

// In running text many a word is about another iteration: only these say enough.
constexpr std::array<Word, 8> k_anywhere = {{{"infra-blocked", "infra-blocked", "infra"},
                                             {"profile-blocked", "profile-blocked", "infra"},
                                             {"compile-blocked", "compile-blocked", "compile"},
                                             {"attribution-only", "attribution-only", "no-op"},
                                             {"promoted", "promoted", "accepted"},
                                             {"within threshold", "within_threshold", "accepted"},
                                             {"low-impact", "low-impact", "rejected"},
                                             {"regressed", "regression", "rejected"}}};

// Whether a word occurs without a "not" in front of it.
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

// "**validated, rejected**. The step got slower" -> "validated, rejected"
std::string_view lead_of(std::string_view text) {
    text = text::trim(text);
    if (text.starts_with("**")) return text.substr(2, text.find("**", 2) - 2);
    for (const std::string_view end : {". ", "; ", ": ", " - ", "\xE2\x80\x94", "\n"})
        text = text.substr(0, text.find(end));
    return text;
}

bool is_code(std::string_view text) {
    return text.size() > 2 && text.front() == '`' && text.find('`', 1) == text.size() - 1;
}

std::string without_code_marks(std::string_view text) {
    return std::string(is_code(text) ? text.substr(1, text.size() - 2) : text);
}

// "- `uv run pytest` -> `49 passed`", "- command + result: `uv run pytest` -> `49 passed`"
std::string command_before_arrow(std::string_view line) {
    for (std::size_t begin = line.find('`'); begin != std::string_view::npos;) {
        const std::size_t end = line.find('`', begin + 1);
        if (end == std::string_view::npos) return {};
        if (arrow_length(line, skip_soft(line, end + 1)) != 0)
            return std::string(line.substr(begin + 1, end - begin - 1));
        begin = line.find('`', end + 1);
    }
    return {};
}

// The command that a bullet gives: `Command: ...`, or nothing but code.
std::string command_of(const Field& field) {
    if (label_is(field.label, "command") && !field.value.empty()) return without_code_marks(field.value);
    const auto bullet = match_bullet(field.line);
    if (!bullet || !is_code(bullet->content)) return {};
    const TestCounts counts = read_test_counts(bullet->content);
    return counts.any() || !counts.verdict.empty() ? std::string() : without_code_marks(bullet->content);
}

}  // namespace

std::optional<Ruling> ruling_of(const Entry& entry, std::string_view decision) {
    if (!decision.empty()) return ruling_in(decision, k_assessments, k_by_wording);
    for (std::size_t i = 0; i < entry.fields.size(); ++i) {
        if (!label_is(entry.fields[i].label, "assessment")) continue;
        const std::string text = text_of(entry, static_cast<std::int32_t>(i));
        if (const auto ruling = ruling_in(lead_of(text), k_assessments, k_by_wording)) return ruling;
    }
    if (entry.head.title.ends_with(')')) {
        const std::string_view last = entry.head.title.substr(entry.head.title.rfind('('));
        if (const auto ruling = ruling_in(last, k_assessments, k_guess)) return ruling;
    }
    auto ruling = ruling_in(entry.head.text, k_anywhere, k_guess);
    // Without a commit nothing was accepted: the word is about the champion of then.
    if (ruling && ruling->outcome == "accepted" && entry.commit_value.kind == CommitKind::none) ruling.reset();
    return ruling;
}

std::string check_command(const Entry& entry, const TestCounts& counts) {
    if (std::string command = command_before_arrow(counts.line); !command.empty()) return command;
    const std::vector<Field>& fields = entry.fields;
    const auto next = std::upper_bound(fields.begin(), fields.end(), counts.number,
                                       [](std::uint32_t number, const Field& field) { return number < field.number; });
    auto index = static_cast<std::int32_t>(next - fields.begin()) - 1;
    if (index < 0) return {};
    std::int32_t group = entry.field(index)->parent;
    if (entry.field(index)->number != counts.number) ++index;  // a line of text below that bullet
    for (; group >= 0; index = group, group = entry.field(group)->parent) {
        for (std::int32_t i = index - 1; i > group; --i) {
            if (entry.field(i)->parent != group) continue;
            if (std::string command = command_of(*entry.field(i)); !command.empty()) return command;
        }
    }
    return {};
}

std::string text_of(const Entry& entry, std::int32_t index) {
    const Field& field = *entry.field(index);
    if (!has_text(field.body)) return std::string(field.value);
    if (!field.value.empty()) return {};
    std::string text;
    std::size_t items = 0;
    for (std::size_t i = static_cast<std::size_t>(index) + 1; i < entry.fields.size(); ++i) {
        const Field& child = entry.fields[i];
        if (child.parent < index) break;
        if (child.parent != index || has_text(child.body)) return {};
        text += (text.empty() ? "" : " ") + std::string(match_bullet(child.line)->content);
        ++items;
    }
    std::size_t lines = 0;
    Line line;
    for (LineCursor cursor(field.body); cursor.next(line);) {
        if (line.text.starts_with("<!-- gdnctl:")) break;
        lines += has_text(line.text) ? 1 : 0;
    }
    return lines == items ? text : std::string();
}

}  // namespace gdnctl::runlog::detail
