#include "services/ray/log_join.h"

#include <algorithm>
#include <vector>

#include "core/percent.h"

namespace gdnctl::ray {

namespace {

// Knuth, Morris and Pratt: for each prefix the length of its longest border.
std::vector<std::size_t> borders_of(std::string_view pattern) {
    std::vector<std::size_t> border(pattern.size(), 0);
    for (std::size_t i = 1, length = 0; i < pattern.size(); ++i) {
        while (length > 0 && pattern[i] != pattern[length]) length = border[length - 1];
        if (pattern[i] == pattern[length]) ++length;
        border[i] = length;
    }
    return border;
}

char plain_escape(char c) {
    switch (c) {
        case 'n': return '\n';
        case 't': return '\t';
        case 'r': return '\r';
        case 'b': return '\b';
        case 'f': return '\f';
        case '"':
        case '\\':
        case '/': return c;
        default: return '\0';
    }
}

}  // namespace

Joint find_joint(std::string_view window, std::string_view text, std::size_t& next) {
    if (window.empty() || window.size() > text.size()) return Joint::absent;
    const std::vector<std::size_t> border = borders_of(window);
    Joint joint = Joint::absent;
    std::size_t matched = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        while (matched > 0 && (matched == window.size() || text[i] != window[matched])) matched = border[matched - 1];
        if (text[i] == window[matched]) ++matched;
        if (matched != window.size()) continue;
        if (joint == Joint::found) return Joint::ambiguous;
        joint = Joint::found;
        next = i + 1;
    }
    return joint;
}

std::size_t count_lines(std::string_view text) {
    const auto newlines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    return newlines + (text.empty() || text.back() == '\n' ? 0 : 1);
}

bool begins_in(std::string_view head, std::string_view piece) {
    if (piece.empty()) return false;
    for (std::size_t at = 0; at < head.size();) {
        const std::size_t common = std::min(piece.size(), head.size() - at);
        // The rest of the head is too short to tell.
        if (at > 0 && common < piece.size()) return false;
        if (head.substr(at, common) == piece.substr(0, common)) return true;
        const std::size_t newline = head.find('\n', at);
        if (newline == std::string_view::npos) return false;
        at = newline + 1;
    }
    return false;
}

std::uint64_t LogPosition::lines_with(std::string_view fresh) const {
    const std::string_view end = fresh.empty() ? std::string_view(m_window) : fresh;
    const bool unfinished = !end.empty() && end.back() != '\n';
    return m_newlines + static_cast<std::uint64_t>(std::count(fresh.begin(), fresh.end(), '\n')) + (unfinished ? 1 : 0);
}

void LogPosition::advance(std::string_view bytes) {
    if (bytes.empty()) return;
    m_newlines += static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
    if (m_knows_start && m_head.size() < k_window) m_head += bytes.substr(0, k_window - m_head.size());
    if (m_window.ends_with('\r') && bytes.front() == '\n') ++m_pairs;
    for (std::size_t at = bytes.find("\r\n"); at != std::string_view::npos; at = bytes.find("\r\n", at + 2)) ++m_pairs;
    m_bytes += bytes.size();
    if (bytes.size() >= k_window) {
        m_window = bytes.substr(bytes.size() - k_window);
        return;
    }
    m_window += bytes;
    if (m_window.size() > k_window) m_window.erase(0, m_window.size() - k_window);
}

void LogsField::put(std::uint32_t c) {
    const auto byte = [this](std::uint32_t value) {
        m_decoded += static_cast<char>(static_cast<unsigned char>(value));
    };
    if (c < 0x80) {
        byte(c);
    } else if (c < 0x800) {
        byte(0xC0 | c >> 6);
        byte(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        byte(0xE0 | c >> 12);
        byte(0x80 | (c >> 6 & 0x3F));
        byte(0x80 | (c & 0x3F));
    } else {
        byte(0xF0 | c >> 18);
        byte(0x80 | (c >> 12 & 0x3F));
        byte(0x80 | (c >> 6 & 0x3F));
        byte(0x80 | (c & 0x3F));
    }
}

// Decodes a complete \uXXXX. The first half of a pair waits for the second; a single half becomes U+FFFD.
void LogsField::code_unit() {
    constexpr std::uint32_t k_replacement = 0xFFFD;
    const bool is_low = m_unit >= 0xDC00 && m_unit <= 0xDFFF;
    if (m_high != 0 && is_low) {
        put(0x10000 + ((m_high - 0xD800) << 10) + (m_unit - 0xDC00));
        m_high = 0;
        return;
    }
    if (m_high != 0) put(k_replacement);
    m_high = m_unit >= 0xD800 && m_unit <= 0xDBFF ? m_unit : 0;
    if (m_high == 0) put(is_low ? k_replacement : m_unit);
}

// The second half of a pair is missing.
void LogsField::code_unit_alone() {
    m_high = 0;
    put(0xFFFD);
}

void LogsField::step(char c) {
    switch (m_state) {
        case State::head: {
            constexpr std::size_t k_head_limit = 64;
            if (c == ' ' || c == '\t' || c == '\r' || c == '\n') return;
            m_head += c;
            constexpr std::string_view k_wanted = "{\"logs\":\"";
            if (m_head == k_wanted) m_state = State::text;
            if (!k_wanted.starts_with(m_head) || m_head.size() > k_head_limit) m_state = State::bad;
            return;
        }
        case State::text:
            if (c == '\\') {
                m_state = State::escape;
                return;
            }
            if (m_high != 0) code_unit_alone();
            if (c == '"') {
                m_state = State::end;
            } else {
                m_decoded += c;
            }
            return;
        case State::escape:
            if (c == 'u') {
                m_state = State::hex;
                m_unit = 0;
                m_digits = 0;
                return;
            }
            if (m_high != 0) code_unit_alone();
            m_state = plain_escape(c) == '\0' ? State::bad : State::text;
            if (m_state == State::text) m_decoded += plain_escape(c);
            return;
        case State::hex: {
            const int value = text::hex_value(c);
            if (value < 0) {
                m_state = State::bad;
                return;
            }
            m_unit = m_unit << 4 | static_cast<std::uint32_t>(value);
            if (++m_digits < 4) return;
            code_unit();
            m_state = State::text;
            return;
        }
        case State::end:
        case State::bad: return;
    }
}

bool LogsField::feed(std::string_view piece) {
    m_decoded.clear();
    for (const char c : piece) {
        step(c);
        if (m_state == State::bad) break;
    }
    const bool wanted = m_decoded.empty() || m_out(m_decoded);
    return wanted && m_state != State::bad;
}

}  // namespace gdnctl::ray
