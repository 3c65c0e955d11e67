// The products of a pass: of fp32 panels, or of bf16 pairs where x and w are bf16 and the processor multiplies them.
#pragma once

#include <type_traits>

#include "oracle/linear_ce/kernels/packing.h"
#include "oracle/linear_ce/kernels/passes.h"
#include "oracle/linear_ce/kernels/row_kernel.h"

namespace gdnctl::oracle::linear_ce {

// Rounds a row of logits as its operands say, before the cap.
template <class Real>
void round_logits(const Operands& operands, const Row<Real>& row, std::size_t i) {
    if (!operands.bf16_logits) return;
    const auto shift = static_cast<Real>(operands.shift == nullptr ? 0 : operands.shift[i]);
    change_each(row, [shift](Real z) { return static_cast<Real>(widened(narrowed(static_cast<float>(z + shift)))); });
}

template <class Real>
class Product {
public:
    Product(const Operands& o, const RowKernel<Real>& kernel)
        : m_pairs(kernel.multiply_pairs != nullptr && o.x.storage == Storage::bf16 && o.w.storage == Storage::bf16),
          m_hidden(o.hidden),
          m_multiply(m_pairs ? kernel.multiply_pairs : kernel.multiply) {}

    bool in_pairs() const { return m_pairs; }
    // What `elements` factors take in a panel.
    std::size_t depth_of(std::size_t elements) const { return m_pairs ? blocks_of(elements, 2) : elements; }
    // Elements of a panel for each of its columns.
    std::size_t depth() const { return depth_of(m_hidden); }

    // Columns [j, j + columns) of an [H, ...] view in panels of `width`, depth() * width apart.
    void pack_panels(const View& view, std::size_t j, std::size_t columns, std::size_t width, Real* to) const {
        pack_part(view, 0, m_hidden, j, columns, width, depth() * width, to);
    }

    // pack() or pack_pairs().
    void pack_part(const View& view, std::size_t i, std::size_t count, std::size_t j, std::size_t columns,
                   std::size_t width, std::size_t stride, Real* to) const {
        if constexpr (std::is_same_v<Real, float>) {
            if (m_pairs) return pack_pairs(view, i, count, j, columns, width, stride, to);
        }
        pack(view, i, count, j, columns, width, stride, to);
    }

    void multiply(const Real* a, const Real* b, std::size_t depth, Real* c, std::size_t stride, bool add) const {
        m_multiply(a, b, depth, c, stride, add);
    }

private:
    bool m_pairs;
    std::size_t m_hidden;
    decltype(RowKernel<Real>::multiply) m_multiply;
};

}  // namespace gdnctl::oracle::linear_ce
