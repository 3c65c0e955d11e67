// Bullets and their labels.
#include <algorithm>

#include "core/text.h"
#include "runlog/parse/detail.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

namespace detail {

namespace {

// "value <!-- note -->" -> "value": Markdown does not show the note. A comment in backticks is shown as code, and
// stays.
std::string_view without_trailing_comments(std::string_view content) {
    while (content.ends_with("-->")) {
        const std::size_t begin = content.rfind("<!--");
        if (begin == std::string_view::npos) break;
        const std::string_view before = content.substr(0, begin);
        if (std::count(before.begin(), before.end(), '`') % 2 != 0) break;
        content = text::trim(before);
    }
    return content;
}

}  // namespace

bool has_text(std::string_view part) {
    constexpr std::string_view no_text = " \t\r\n-*+`";
    if (part.find("<!--") == std::string_view::npos) return part.find_first_not_of(no_text) != std::string_view::npos;
    BlockTracker tracker;
    Line line;
    for (LineCursor cursor(part); cursor.next(line);) {
        tracker.inside(line.text);
        if (tracker.commented()) continue;
        const auto bullet = match_bullet(line.text);
        const std::string_view shown = bullet ? bullet->content : line.text;
        if (shown.find_first_not_of(no_text) != std::string_view::npos) return true;
    }
    return false;
}

std::optional<Bullet> match_bullet(std::string_view line) {
    Bullet bullet;
    std::size_t at = 0;
    for (; at < line.size() && is_blank(line[at]); ++at) bullet.indent += line[at] == '\t' ? 4 : 1;
    if (at >= line.size() || (line[at] != '-' && line[at] != '*' && line[at] != '+')) return std::nullopt;
    if (at + 1 >= line.size() || !is_blank(line[at + 1])) return std::nullopt;
    bullet.marker = line[at];
    bullet.content = without_trailing_comments(text::trim(line.substr(at + 1)));
    return bullet;
}

namespace {

// A colon that ends a label is followed by a blank, a mark or nothing (those in "12:55" and "a.py:7" do not end one).
bool ends_label(std::string_view s, std::size_t colon) {
    if (colon + 1 >= s.size()) return true;
    const char next = s[colon + 1];
    return is_blank(next) || next == '`' || next == '*' || next == '"';
}

std::size_t find_label_colon(std::string_view s, bool inside_code) {
    bool code = false;
    for (std::size_t i = 0; i < s.size() && i < 200; ++i) {
        if (s[i] == '`' && !inside_code) code = !code;
        if (s[i] == ':' && !code && i > 0 && ends_label(s, i)) return i;
    }
    return std::string_view::npos;
}

}  // namespace

std::optional<Labelled> split_label(std::string_view content) {
    // `label: value` entirely in backticks.
    if (content.size() > 2 && content.front() == '`' && content.find('`', 1) == content.size() - 1) {
        content = content.substr(1, content.size() - 2);
    }
    const std::size_t colon = find_label_colon(content, false);
    if (colon == std::string_view::npos) return std::nullopt;
    std::string_view value = content.substr(colon + 1);
    while (!value.empty() && value.front() == '*') value.remove_prefix(1);
    const std::string_view label = strip_marks(content.substr(0, colon));
    if (label.empty()) return std::nullopt;
    return Labelled{label, text::trim(value)};
}

bool label_is(std::string_view label, std::string_view lower_case_name, bool prefix) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < label.size(); ++i) {
        const char c = label[i];
        if (c == '`' || c == '*') continue;
        if (at == lower_case_name.size()) return prefix ? !is_word(c) : text::trim(label.substr(i)).starts_with("(");
        if (lower(c) != lower_case_name[at]) return false;
        ++at;
    }
    return at == lower_case_name.size();
}

bool contains_word(std::string_view text, std::string_view needle) {
    for (std::size_t at = text.find(needle); at != std::string_view::npos; at = text.find(needle, at + 1)) {
        const std::size_t end = at + needle.size();
        if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
    }
    return false;
}

}  // namespace detail

}  // namespace gdnctl::runlog
