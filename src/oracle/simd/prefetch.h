// Prefetches memory a few lines at a time during other computations.
#pragma once

#include <cstddef>

namespace gdnctl::oracle {
namespace {

class Prefetch {
public:
    void clear() { m_count = m_at = m_column = m_lines = 0; }

    // Rows of `width` elements of `element` bytes each, `stride` elements apart.
    void add(const void* from, std::size_t element, std::size_t stride, std::size_t rows, std::size_t width) {
        if (m_count == k_most || rows * width == 0) return;
        m_blocks[m_count++] = {static_cast<const char*>(from), stride * element, rows, width * element};
        m_lines += rows * ((width * element + k_line - 1) / k_line);
    }

    // Spreads the prefetches over `calls` calls.
    void spread(std::size_t calls) { m_a_call = (m_lines + calls - 1) / calls; }

    void fetch() {
        for (std::size_t n = 0; n < m_a_call && m_at < m_count; ++n) {
            Block& block = m_blocks[m_at];
            __builtin_prefetch(block.from + m_column, 0, 2);
            m_column += k_line;
            if (m_column < block.width) continue;
            m_column = 0;
            block.from += block.stride;
            if (--block.rows == 0) ++m_at;
        }
    }

private:
    static constexpr std::size_t k_line = 64;  // bytes
    static constexpr std::size_t k_most = 6;
    struct Block {
        const char* from = nullptr;
        std::size_t stride = 0, rows = 0, width = 0;
    };
    Block m_blocks[k_most];
    std::size_t m_count = 0, m_at = 0, m_column = 0, m_lines = 0, m_a_call = 0;
};

}  // namespace
}  // namespace gdnctl::oracle
