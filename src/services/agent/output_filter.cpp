#include <array>
#include <string_view>

#include "core/text.h"
#include "services/agent/agent.h"

namespace gdnctl {

namespace {

bool starts_update(std::string_view line) {
    constexpr std::string_view k_file = "file ";
    constexpr std::array<std::string_view, 5> k_words = {"update:", "create:", "add:", "delete:", "rename:"};
    if (!line.starts_with(k_file)) return false;
    line.remove_prefix(k_file.size());
    for (const auto word : k_words) {
        if (line.starts_with(word)) return true;
    }
    return false;
}

// "index 83db48f..bf269f4 100644"
bool is_index_line(std::string_view line) {
    constexpr std::string_view k_index = "index ";
    if (!line.starts_with(k_index)) return false;
    line.remove_prefix(k_index.size());
    const std::size_t digits = line.find_first_not_of("0123456789abcdef");
    if (digits == 0 || digits == std::string_view::npos || !line.substr(digits).starts_with("..")) return false;
    line.remove_prefix(digits + 2);
    return !line.empty() && line.find_first_not_of("0123456789abcdef") != 0;
}

bool is_diff_header(std::string_view line) {
    constexpr std::array<std::string_view, 15> k_starts = {"diff --git ",
                                                           "--- ",
                                                           "+++ ",
                                                           "@@ ",
                                                           "\\ No newline",
                                                           "old mode ",
                                                           "new mode ",
                                                           "new file mode ",
                                                           "deleted file mode ",
                                                           "similarity index ",
                                                           "dissimilarity index ",
                                                           "rename from ",
                                                           "rename to ",
                                                           "copy from ",
                                                           "Binary files "};
    for (const auto start : k_starts) {
        if (line.starts_with(start)) return true;
    }
    return line.starts_with("copy to ") || line == "GIT binary patch" || is_index_line(line);
}

// "12,3" or "12": the number of lines. nullopt: neither.
std::optional<std::int64_t> line_count(std::string_view range) {
    const std::size_t comma = range.find(',');
    const auto start = text::parse_int(range.substr(0, comma));
    if (!start || *start < 0) return std::nullopt;
    if (comma == std::string_view::npos) return 1;
    const auto count = text::parse_int(range.substr(comma + 1));
    return count && *count >= 0 ? count : std::nullopt;
}

}  // namespace

bool OutputFilter::shows(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (m_show_all) return true;
    if (starts_update(line)) {
        m_suppressing = true;
        m_counted = false;
        m_old = m_new = 0;
        return false;
    }
    m_suppressing = m_suppressing && continues_diff(line);
    return !m_suppressing;
}

bool OutputFilter::continues_diff(std::string_view line) {
    const char first = line.empty() ? ' ' : line.front();
    if (m_old > 0 || m_new > 0) {  // within a hunk of known length
        if (first == ' ' || first == '-') --m_old;
        if (first == ' ' || first == '+') --m_new;
        if (first == ' ' || first == '-' || first == '+' || first == '\\') return true;
        m_old = m_new = 0;
        return is_diff_header(line);
    }
    if (line.starts_with("@@ -")) {
        const auto words = text::split(line, ' ');
        if (words.size() >= 4 && words[2].starts_with('+') && words[3] == "@@") {
            const auto old_lines = line_count(words[1].substr(1));
            const auto new_lines = line_count(words[2].substr(1));
            m_counted = old_lines && new_lines;
            m_old = old_lines.value_or(0);
            m_new = new_lines.value_or(0);
            return true;
        }
    }
    if (line.empty() || is_diff_header(line)) return true;
    // Text after the last line of a counted hunk may start with a blank or a dash.
    return !m_counted && (first == ' ' || first == '+' || first == '-');
}

}  // namespace gdnctl
