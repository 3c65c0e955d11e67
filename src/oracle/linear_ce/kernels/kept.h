// Logits that the first pass leaves for the second, in the array that gw will fill: those of a block of columns lie
// where the block's part of gw will be. So nothing is overwritten before it was used, whatever the order of the blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "oracle/linear_ce/kernels/passes.h"
#include "oracle/linear_ce/kernels/row_kernel.h"

namespace gdnctl::oracle::linear_ce {

template <class Real>
class KeptLogits {
public:
    KeptLogits(const Operands& operands, const Gradient<Real>& gw, std::size_t width)
        : m_to(static_cast<std::byte*>(gw.data != nullptr ? static_cast<void*>(gw.data) : gw.narrow)),
          m_narrow(gw.data == nullptr),
          m_hv(operands.layout == Layout::hv),
          m_hidden(operands.hidden),
          m_vocab(operands.vocab),
          m_width(width) {}

    // How many rows, from the first on, are kept of a block of so many columns.
    std::size_t rows(std::size_t columns) const {
        if (m_to == nullptr) return 0;
        if (!m_narrow) return m_hidden;
        // A row of logits takes two of gw: halves of whole tiles.
        return m_hv && columns % (2 * m_width) != 0 ? 0 : m_hidden / 2;
    }

    void put(const Row<Real>& logits, std::size_t i, std::size_t first) {
        each(logits, i, first, [](std::byte* there, Real* here, std::size_t n) { std::memcpy(there, here, n); });
    }
    void take(const Row<Real>& logits, std::size_t i, std::size_t first) const {
        each(logits, i, first, [](std::byte* there, Real* here, std::size_t n) { std::memcpy(here, there, n); });
    }

private:
    template <class Copy>
    void each(const Row<Real>& logits, std::size_t i, std::size_t first, const Copy& copy) const {
        const std::size_t element = m_narrow ? sizeof(Bf16) : sizeof(Real);
        for (std::size_t column = 0; column < logits.columns; column += m_width) {
            std::byte* there = nullptr;
            if (!m_hv) {
                there = m_to + first * m_hidden * element + (i * logits.columns + column) * sizeof(Real);
            } else if (m_narrow) {
                const std::size_t half = logits.columns / 2;
                there = m_to + ((2 * i + column / half) * m_vocab + first) * element + column % half * sizeof(Real);
            } else {
                there = m_to + (i * m_vocab + first + column) * element;
            }
            const std::size_t count = std::min(m_width, logits.columns - column);
            copy(there, logits.at + column / m_width * logits.stride, count * sizeof(Real));
        }
    }

    std::byte* m_to;
    bool m_narrow, m_hv;
    std::size_t m_hidden, m_vocab, m_width;
};

}  // namespace gdnctl::oracle::linear_ce
