// Markdown blocks that hide lines or end entries, by the rules of CommonMark 0.31, chapters 4 and 5. Tabs, block quotes
// and indented code are simplified, since no entry depends on them.
#include <algorithm>
#include <array>

#include "runlog/parse/detail.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

namespace {

constexpr std::array<std::string_view, 4> k_raw_tags = {"pre", "script", "style", "textarea"};

bool starts_with_word(std::string_view s, std::string_view lower_case_word) {
    if (s.size() < lower_case_word.size()) return false;
    return std::equal(lower_case_word.begin(), lower_case_word.end(), s.begin(),
                      [](char a, char b) { return a == detail::lower(b); });
}

// `<pre>`, `<script src=x>`
bool opens_raw(std::string_view ink) {
    return std::any_of(k_raw_tags.begin(), k_raw_tags.end(), [&](std::string_view tag) {
        if (!starts_with_word(ink.substr(1), tag)) return false;
        const std::size_t end = 1 + tag.size();
        return end == ink.size() || ink[end] == '>' || detail::is_blank(ink[end]);
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
                       [&](char c) { return c == mark || (blanks_between && detail::is_blank(c)); });
}

bool is_thematic_break(std::string_view ink) {
    const char c = ink[0];
    return (c == '-' || c == '*' || c == '_') && only(ink, c, true) && std::count(ink.begin(), ink.end(), c) >= 3;
}

bool is_heading(std::string_view ink) {
    const std::size_t level = std::min(ink.find_first_not_of('#'), ink.size());
    return level >= 1 && level <= 6 && (level == ink.size() || detail::is_blank(ink[level]));
}

// Length of a list marker, `-` or `12.`; 0: none.
std::size_t list_marker(std::string_view ink) {
    std::size_t length = 0;
    if (ink[0] == '-' || ink[0] == '*' || ink[0] == '+') {
        length = 1;
    } else {
        while (length < ink.size() && length < 9 && detail::is_digit(ink[length])) ++length;
        if (length == 0 || length == ink.size() || (ink[length] != '.' && ink[length] != ')')) return 0;
        ++length;
    }
    return length == ink.size() || detail::is_blank(ink[length]) ? length : 0;
}

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
    for (; at < line.size() && detail::is_blank(line[at]); ++at) indent += line[at] == '\t' ? 4 : 1;
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

}  // namespace gdnctl::runlog
