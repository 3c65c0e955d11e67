#include "platform/process_stream.h"

#include <algorithm>

namespace gdnctl {

void OutputStream::keep(std::string_view bytes) {
    const std::size_t room = m_limit - std::min(m_limit, m_kept.size());
    if (bytes.size() > room) m_truncated = true;
    m_kept.append(bytes.substr(0, room));
}

void OutputStream::feed(std::string_view bytes) {
    if (m_on_bytes) return m_on_bytes(bytes);
    if (!m_on_line) return keep(bytes);
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        keep(bytes.substr(0, end));
        if (end == std::string_view::npos) return;
        m_on_line(m_kept);
        m_kept.clear();
        bytes.remove_prefix(end + 1);
    }
}

void OutputStream::finish() {
    if (!m_on_line || m_kept.empty()) return;
    m_on_line(m_kept);
    m_kept.clear();
}

}  // namespace gdnctl
