#include <cstring>

#include "runlog/parse/log.h"

namespace gdnctl::runlog {

bool LineCursor::next(Line& line) {
    if (m_rest.empty()) return false;
    const char* begin = m_rest.data();
    const char* end = begin + m_rest.size();
    if (m_line_feed == nullptr || m_line_feed < begin) {
        const void* found = std::memchr(begin, '\n', m_rest.size());
        m_line_feed = found == nullptr ? end : static_cast<const char*>(found);
    }
    const char* stop = m_line_feed;
    std::size_t ending = stop == end ? 0 : 1;
    if (const void* found = std::memchr(begin, '\r', static_cast<std::size_t>(stop - begin)); found != nullptr) {
        const char* carriage_return = static_cast<const char*>(found);
        ending = carriage_return + 1 == stop && stop != end ? 2 : 1;
        stop = carriage_return;
    }
    const auto length = static_cast<std::size_t>(stop - begin);
    line.text = m_rest.substr(0, length);
    line.number = m_next++;
    m_ending = m_rest.substr(length, ending);
    m_rest.remove_prefix(length + ending);
    return true;
}

}  // namespace gdnctl::runlog
