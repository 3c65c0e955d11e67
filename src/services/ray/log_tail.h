// The last lines of a text that arrives in pieces.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace gdnctl::ray {

class LastLines {
public:
    // Keeps the last `lines` lines, about `bytes` in total at most.
    LastLines(std::size_t lines, std::size_t bytes) : m_lines(lines), m_bytes(bytes) {}

    void feed(std::string_view piece);
    // The lines kept; a last one without newline counts.
    std::string take();

private:
    std::size_t m_lines, m_bytes;
    std::deque<std::string> m_held;  // the last one may still grow
    std::size_t m_held_bytes = 0;
};

}  // namespace gdnctl::ray
