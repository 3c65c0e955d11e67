#include <algorithm>
#include <array>

#include "core/text.h"
#include "runlog/import/detail.h"
#include "runlog/metrics/values.h"
#include "runlog/parse/detail.h"

namespace gdnctl::runlog::detail {

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

}  // namespace gdnctl::runlog::detail
