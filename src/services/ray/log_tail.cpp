#include "services/ray/log_tail.h"

namespace gdnctl::ray {

void LastLines::feed(std::string_view piece) {
    while (!piece.empty()) {
        const std::size_t newline = piece.find('\n');
        const std::string_view part = piece.substr(0, newline == std::string_view::npos ? piece.size() : newline + 1);
        piece.remove_prefix(part.size());
        if (m_held.empty() || m_held.back().ends_with('\n')) m_held.emplace_back();
        m_held.back() += part;
        m_held_bytes += part.size();
        while (m_held.size() > m_lines || (m_held_bytes > m_bytes && m_held.size() > 1)) {
            m_held_bytes -= m_held.front().size();
            m_held.pop_front();
        }
        if (m_held_bytes > 2 * m_bytes && m_held.size() == 1) {
            m_held.front().erase(0, m_held_bytes - m_bytes);  // a single extremely long line: keep its end
            m_held_bytes = m_bytes;
        }
    }
}

std::string LastLines::take() {
    std::string out;
    for (const std::string& line : m_held) out += line;
    m_held.clear();
    m_held_bytes = 0;
    return out;
}

}  // namespace gdnctl::ray
