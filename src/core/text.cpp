#include "core/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace gdnctl::text {

namespace {

constexpr bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

constexpr bool is_shell_safe(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
}

}  // namespace

std::string_view trim(std::string_view s) {
    while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
    while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
    return s;
}

std::vector<std::string_view> split(std::string_view s, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t at = s.find(separator);
        parts.push_back(s.substr(0, at));
        if (at == std::string_view::npos) return parts;
        s.remove_prefix(at + 1);
    }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
    std::string joined;
    for (const std::string& part : parts) {
        if (&part != parts.data()) joined += separator;
        joined += part;
    }
    return joined;
}

std::string to_lower(std::string_view s) {
    std::string lower(s);
    for (char& c : lower) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return lower;
}

std::string without_colour(std::string_view s) {
    std::string out;
    out.reserve(s.size());
    for (std::size_t i = 0; i < s.size(); ++i) {
        if (s[i] != '\x1b' || i + 1 >= s.size() || s[i + 1] != '[') {
            out += s[i];
            continue;
        }
        i += 2;
        while (i < s.size() && !((s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= 'a' && s[i] <= 'z'))) ++i;
    }
    return out;
}

std::string visible_line(std::string_view line) {
    std::string plain = without_colour(line);
    while (plain.ends_with('\r')) plain.pop_back();
    return visible(plain);
}

std::optional<std::int64_t> parse_int(std::string_view s) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, 10);
    if (error != std::errc() || end != s.data() + s.size()) return std::nullopt;
    return value;
}

std::optional<double> parse_double(std::string_view s) {
    double value = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, std::chars_format::general);
    if (error != std::errc() || end != s.data() + s.size() || !std::isfinite(value)) return std::nullopt;
    return value;
}

std::string shell_quote(std::string_view word) {
    bool safe = !word.empty();
    for (char c : word) safe = safe && is_shell_safe(c);
    if (safe) return std::string(word);
    std::string quoted = "'";
    for (char c : word) {
        if (c == '\'') {
            quoted += "'\\''";
        } else {
            quoted += c;
        }
    }
    return quoted + "'";
}

std::string shell_join(std::span<const std::string> words) {
    std::string line;
    for (const std::string& word : words) {
        if (&word != words.data()) line += ' ';
        line += shell_quote(word);
    }
    return line;
}

std::optional<std::vector<std::string>> shell_split(std::string_view line) {
    std::vector<std::string> words;
    std::string word;
    bool in_word = false;
    char quote = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        const bool escapes_next =
            c == '\\' && quote != '\'' && i + 1 < line.size() &&
            (quote == 0 || std::string_view("\"\\$`\n").find(line[i + 1]) != std::string_view::npos);
        if (escapes_next) {
            ++i;
            if (line[i] != '\n') word += line[i];
            in_word = true;
        } else if (quote != 0) {
            if (c == quote) {
                quote = 0;
            } else {
                word += c;
            }
        } else if (c == '\'' || c == '"') {
            quote = c;
            in_word = true;
        } else if (c == '\\') {
            return std::nullopt;  // a trailing backslash has nothing to quote
        } else if (is_space(c)) {
            if (in_word) words.push_back(std::move(word));
            word.clear();
            in_word = false;
        } else {
            word += c;
            in_word = true;
        }
    }
    if (quote != 0) return std::nullopt;
    if (in_word) words.push_back(std::move(word));
    return words;
}

namespace {

struct Step {
    std::size_t length;  // bytes to advance, at least 1
    bool valid;
};

// Reads one code point at the start of `s` (not empty). An invalid prefix covers the bytes that could still have begun
// a well-formed sequence (Unicode 15, table 3-7), so each maximal ill-formed part counts once.
Step next(std::string_view s) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) return {1, true};
    std::size_t want = 0;
    unsigned low = 0x80, high = 0xBF;  // allowed range of the second byte
    if (lead >= 0xC2 && lead <= 0xDF) {
        want = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        want = 3;
        if (lead == 0xE0) low = 0xA0;   // overlong
        if (lead == 0xED) high = 0x9F;  // surrogates
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        want = 4;
        if (lead == 0xF0) low = 0x90;   // overlong
        if (lead == 0xF4) high = 0x8F;  // beyond U+10FFFF
    } else {
        return {1, false};
    }
    for (std::size_t i = 1; i < want; ++i) {
        if (i >= s.size() || byte(i) < low || byte(i) > high) return {i, false};
        low = 0x80;
        high = 0xBF;
    }
    return {want, true};
}

char32_t decoded(std::string_view point) {
    constexpr std::array<unsigned char, 4> k_lead_bits = {0x7F, 0x1F, 0x0F, 0x07};
    char32_t value = static_cast<unsigned char>(point[0]) & k_lead_bits[point.size() - 1];
    for (const char c : point.substr(1)) value = (value << 6U) | (static_cast<unsigned char>(c) & 0x3FU);
    return value;
}

struct Range {
    char32_t first, last;
};
// Characters that show nothing or change the order of others. U+200C and U+200D are not among them: scripts and emoji
// need them.
constexpr std::array k_unseen = {Range{0x7F, 0x9F},         // DEL and C1
                                 Range{0xAD, 0xAD},         // soft hyphen
                                 Range{0x61C, 0x61C},       // Arabic letter mark
                                 Range{0x115F, 0x1160},     // Hangul fillers
                                 Range{0x180E, 0x180E},     // Mongolian vowel separator
                                 Range{0x200B, 0x200B},     // zero-width space
                                 Range{0x200E, 0x200F},     // direction marks
                                 Range{0x2028, 0x202E},     // line separators, bidirectional embeddings and overrides
                                 Range{0x2060, 0x206F},     // word joiner, bidirectional isolates
                                 Range{0x3164, 0x3164},     // Hangul filler
                                 Range{0xFEFF, 0xFEFF},     // byte order mark
                                 Range{0xFFA0, 0xFFA0},     // Hangul filler
                                 Range{0xFFF9, 0xFFFB},     // annotations
                                 Range{0xE0000, 0xE0FFF}};  // tags, variation selectors

bool is_unseen(char32_t c) {
    if (c < 0x7F) return c < 0x20 && c != '\n' && c != '\t';
    return std::any_of(k_unseen.begin(), k_unseen.end(),
                       [c](const Range& range) { return c >= range.first && c <= range.last; });
}

std::string escaped(char32_t c) {
    const auto number = static_cast<std::uint32_t>(c);
    return c < 0x100 ? fmt::format("\\x{:02x}", number) : fmt::format("\\u{:04x}", number);
}

}  // namespace

std::string_view find_unseen(std::string_view s) {
    for (std::size_t at = 0; at < s.size();) {
        const auto byte = static_cast<unsigned char>(s[at]);
        if (byte >= 0x20 && byte < 0x7F) {
            ++at;
            continue;
        }
        const Step step = next(s.substr(at));
        const std::string_view point = s.substr(at, step.length);
        if (step.valid && is_unseen(decoded(point))) return point;
        at += step.length;
    }
    return {};
}

std::string replace_unseen(std::string_view s, std::string (*escape)(char32_t)) {
    std::string out;
    out.reserve(s.size());
    for (;;) {
        const std::string_view found = find_unseen(s);
        if (found.empty()) return out.append(s);
        const auto at = static_cast<std::size_t>(found.data() - s.data());
        out += s.substr(0, at);
        out += escape(decoded(found));
        s.remove_prefix(at + found.size());
    }
}

std::string visible(std::string_view s) { return replace_unseen(repair_utf8(s), escaped); }

bool is_valid_utf8(std::string_view s) {
    while (!s.empty()) {
        const Step step = next(s);
        if (!step.valid) return false;
        s.remove_prefix(step.length);
    }
    return true;
}

std::string repair_utf8(std::string_view s) {
    std::string repaired;
    repaired.reserve(s.size());
    while (!s.empty()) {
        const Step step = next(s);
        if (step.valid) {
            repaired += s.substr(0, step.length);
        } else {
            repaired += "\xEF\xBF\xBD";
        }
        s.remove_prefix(step.length);
    }
    return repaired;
}

std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
    if (a.size() > b.size()) std::swap(a, b);
    if (b.size() - a.size() > limit) return limit + 1;
    // Three rows of the optimal-string-alignment table: two back (for a swap of neighbours), one back, this one.
    std::vector<std::size_t> before(a.size() + 1), last(a.size() + 1), row(a.size() + 1);
    for (std::size_t i = 0; i <= a.size(); ++i) last[i] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
        row[0] = j;
        std::size_t best = j;
        for (std::size_t i = 1; i <= a.size(); ++i) {
            const std::size_t substitution = last[i - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[i] = std::min({last[i] + 1, row[i - 1] + 1, substitution});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[i] = std::min(row[i], before[i - 2] + 1);
            }
            best = std::min(best, row[i]);
        }
        if (best > limit) return limit + 1;
        before.swap(last);
        last.swap(row);
    }
    return std::min(last[a.size()], limit + 1);
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
    if (word.empty()) return std::nullopt;
    const std::size_t limit = std::max<std::size_t>(1, word.size() / 3);
    const std::string* best = nullptr;
    std::size_t best_distance = limit + 1;
    const std::string lower = to_lower(word);
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(lower, to_lower(candidate), limit);
        if (distance < best_distance) {
            best = &candidate;
            best_distance = distance;
        }
    }
    if (best != nullptr) return *best;
    const std::string* extended = nullptr;
    for (const std::string& candidate : candidates) {
        if (!candidate.starts_with(word)) continue;
        if (extended != nullptr) return std::nullopt;  // more than one could be meant
        extended = &candidate;
    }
    return extended == nullptr ? std::nullopt : std::optional<std::string>(*extended);
}

namespace {

// On a terminal: one for each code point, none for a colour.
std::size_t columns_of(std::string_view s) {
    const std::string plain = without_colour(s);
    return static_cast<std::size_t>(std::count_if(
        plain.begin(), plain.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

// The end of a line's first word: the next blank outside a command in backquotes, and not that of "94 %".
std::size_t end_of_word(std::string_view line) {
    std::size_t at = 0;
    while (at < line.size() && (line[at] != ' ' || line.substr(at).starts_with(" %"))) {
        const std::size_t close = line[at] == '`' ? line.find('`', at + 1) : std::string_view::npos;
        at = (close == std::string_view::npos ? at : close) + 1;
    }
    return at;
}

// Where a command begins that ends with the line: after "next:", "run:" or "$", with a time before or not.
std::size_t start_of_command(std::string_view line, std::size_t at) {
    for (int words = 0; words < 2 && at < line.size(); ++words) {
        const std::size_t end = std::min(line.find(' ', at), line.size() - 1);
        const std::string_view word = line.substr(at, end - at);
        at = end + 1;
        if (word == "next:" || word == "run:" || word == "$") return at;
    }
    return line.size();
}

// Below the text of "name      text", else two columns after the line's start.
std::size_t hang_of(std::string_view line, std::size_t width) {
    const std::size_t start = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t gap = line.rfind("  ");
    if (gap != std::string_view::npos && gap > start && columns_of(line.substr(0, gap + 2)) <= width / 3) {
        return columns_of(line.substr(0, gap + 2));
    }
    return start + 2;
}

// Lays out a line within `columns`; what does not fit goes on at column `hang`.
class FoldedLine {
public:
    FoldedLine(std::size_t columns, std::size_t hang) : m_columns(columns), m_hang(hang) {}

    // A column of a table, after `gap` blanks: whole on the next line if it fits only there.
    void add_cell(std::string_view cell, std::size_t gap) {
        const std::size_t width = columns_of(cell);
        if (!fits(gap, width) && m_column > m_hang && m_column + gap > m_hang && m_hang + width <= m_columns)
            start_line();
        while (!cell.empty()) {
            const std::string_view word = cell.substr(0, end_of_word(cell));
            add_word(word, std::exchange(gap, 1));
            cell.remove_prefix(std::min(word.size() + 1, cell.size()));
        }
    }
    void add_word(std::string_view word, std::size_t gap) {
        const std::size_t width = columns_of(word);
        if (!fits(gap, width) && m_column > m_hang) start_line();
        if (std::exchange(m_fresh, false)) gap = 0;
        m_text.append(gap, ' ') += word;
        m_column += gap + width;
    }

    // Never broken; stays where it is if even a line of its own is too short.
    void add_command(std::string_view command, std::size_t gap) {
        const std::size_t width = columns_of(command);
        if (m_hang + width > m_columns) m_columns = m_column + gap + width;
        add_word(command, gap);
    }

    std::string&& text() && { return std::move(m_text); }

private:
    bool fits(std::size_t gap, std::size_t width) const { return m_column + gap + width <= m_columns; }

    void start_line() {
        m_text += '\n' + std::string(m_hang, ' ');
        m_column = m_hang;
        m_fresh = true;
    }

    std::size_t m_columns, m_hang, m_column = 0;
    bool m_fresh = false;  // only indented so far
    std::string m_text;
};

// What begins at `command` is one word.
std::string folded_line(std::string_view line, std::size_t columns, std::size_t hang,
                        std::size_t command = std::string_view::npos) {
    FoldedLine out(columns, hang);
    const std::string_view last = line.substr(std::min(command, line.size()));
    line.remove_suffix(last.size());
    const std::size_t last_gap = line.size() - (line.find_last_not_of(' ') + 1);
    while (!line.empty()) {
        const std::size_t gap = std::min(line.find_first_not_of(' '), line.size());
        const std::size_t end = std::min(line.find("  ", gap), line.size());
        out.add_cell(line.substr(gap, end - gap), gap);
        line.remove_prefix(end);
    }
    if (!last.empty()) out.add_command(last, last_gap);
    return std::move(out).text();
}

}  // namespace

std::string folded(std::string_view text, int columns, std::optional<int> hang) {
    const auto width = static_cast<std::size_t>(columns);
    std::string out;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (columns_of(line) <= width) {
            out += line;
        } else {
            const std::size_t at = hang ? static_cast<std::size_t>(*hang) : hang_of(line, width);
            out += folded_line(line, width, std::min(at, width / 2));
        }
        text.remove_prefix(line.size());
        if (!text.empty()) out += '\n';
        text.remove_prefix(text.empty() ? 0 : 1);
    }
    return out;
}

std::string folded_message(std::string_view line, int columns) {
    constexpr std::string_view k_tag = "[gdnctl] ";
    const auto width = static_cast<std::size_t>(columns);
    if (columns_of(line) <= width) return std::string(line);
    const std::size_t tag = line.starts_with(k_tag) ? k_tag.size() : 0;
    const std::size_t indent = std::min(line.find_first_not_of(' ', tag), line.size());
    const bool is_command = indent > tag && line.substr(indent).starts_with("gdnctl ");
    return folded_line(line, width, indent, is_command ? indent : start_of_command(line, indent));
}

std::string_view last_lines(std::string_view text, std::size_t count) {
    if (count == 0) return {};
    std::size_t at = text.size();
    if (at > 0 && text[at - 1] == '\n') --at;
    for (std::size_t n = 0; n < count; ++n) {
        if (at == 0) return text;
        at = text.rfind('\n', at - 1);
        if (at == std::string_view::npos) return text;
    }
    return text.substr(at + 1);
}

std::string_view end_within(std::string_view text, std::size_t bytes) {
    if (text.size() <= bytes) return text;
    text.remove_prefix(text.size() - bytes);
    text.remove_prefix(std::min(text.find('\n') + 1, text.size()));  // npos + 1 is 0
    return text;
}

namespace {

bool is_unreserved(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

}  // namespace

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

std::string percent_encode(std::string_view text, std::string_view also) {
    std::string encoded;
    for (const char c : text) {
        if (is_unreserved(c) || also.find(c) != std::string_view::npos) {
            encoded += c;
        } else {
            encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        }
    }
    return encoded;
}

std::optional<std::string> percent_decode(std::string_view text) {
    std::string decoded;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded += text[i];
            continue;
        }
        if (i + 2 >= text.size()) return std::nullopt;
        const int high = hex_value(text[i + 1]);
        const int low = hex_value(text[i + 2]);
        if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
        decoded += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return decoded;
}

}  // namespace gdnctl::text
