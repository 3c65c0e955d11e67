// Rows' sums, block by block of the vocabulary. A task is one block for some rows; what the blocks give a row is added
// up in the order of the vocabulary, whoever computed it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "oracle/linear_ce/kernels/kept.h"
#include "oracle/linear_ce/kernels/packing.h"
#include "oracle/linear_ce/kernels/passes.h"
#include "oracle/linear_ce/kernels/plan.h"
#include "oracle/linear_ce/kernels/product.h"
#include "oracle/linear_ce/kernels/row_kernel.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::linear_ce {

namespace {

constexpr std::size_t k_blocks_kept = 256;  // blocks whose sums wait to be added up

template <class Real>
struct Partial {
    Real largest, sum;
    Real label;  // s of the label, or -infinity
    std::int64_t argmax;
};

// What the blocks so far gave one row.
struct Running {
    double largest = -std::numeric_limits<double>::infinity();
    double sum = 0;
    double label = -std::numeric_limits<double>::infinity();
    std::int64_t argmax = 0;

    template <class Real>
    void add(const Partial<Real>& p) {
        if (p.label > label || std::isnan(p.label)) label = p.label;
        const auto m = static_cast<double>(p.largest);
        if (m > largest) {
            sum = sum * std::exp(largest - m) + static_cast<double>(p.sum);
            largest = m;
            argmax = p.argmax;
        } else {
            sum += static_cast<double>(p.sum) * std::exp(m - largest);
        }
        if (std::isnan(p.sum)) sum = std::numeric_limits<double>::quiet_NaN();
    }
};

// Where s is `value` first; `columns` if nowhere.
template <class Real>
std::size_t first_of(const Row<Real>& row, Real value) {
    for (std::size_t c = 0; c < row.columns; ++c) {
        if (row.at[c / row.width * row.stride + c % row.width] == value) return c;
    }
    return row.columns;
}

template <class Real>
class Forward {
public:
    Forward(const Operands& operands, const Rows<Real>& rows, const Run& run, const Gradient<Real>& keep_in)
        : m_o(operands),
          m_out(rows),
          m_run(run),
          m_kernel(row_kernel<Real>(run.isa)),
          m_product(operands, m_kernel),
          m_plan(m_kernel, operands.batch, operands.hidden, run.block, m_product.in_pairs()),
          m_kept(operands, keep_in, m_kernel.width) {}

    void go() {
        const std::size_t blocks = blocks_of(m_o.vocab, m_plan.columns);
        m_x = aligned<Real>(m_plan.padded_rows() * m_product.depth());
        m_partial.resize(m_plan.rows * std::min(blocks, k_blocks_kept));
        for (std::size_t row = 0; row < m_o.batch; row += m_plan.rows) {
            m_row = row;
            m_rows = std::min(m_plan.rows, m_o.batch - row);
            std::vector<Running> running(m_rows);
            pack_rows();
            for (std::size_t block = 0; block < blocks; block += k_blocks_kept) {
                const std::size_t count = std::min(k_blocks_kept, blocks - block);
                run_tasks(count, m_run.threads, [&] {
                    return [&, work = aligned<Real>(m_plan.panel_size() + m_kernel.height * m_plan.block)](
                               std::size_t task) {
                        if (!m_run.stop || !m_run.stop()) one_block(block + task, task, work.get());
                    };
                });
                for (std::size_t b = 0; b < count; ++b) {
                    for (std::size_t i = 0; i < m_rows; ++i) running[i].add(m_partial[b * m_plan.rows + i]);
                }
            }
            for (std::size_t i = 0; i < m_rows; ++i) finish(running[i], row + i);
        }
    }

private:
    void pack_rows() {
        const View view{m_o.x, m_o.hidden, 1};
        const std::size_t height = m_kernel.height;
        run_tasks(blocks_of(m_rows, height), m_run.threads, [&] {
            return [&](std::size_t panel) {
                const std::size_t first = panel * height;
                m_product.pack_panels(transposed(view), m_row + first, std::min(height, m_rows - first), height,
                                      m_x.get() + first * m_product.depth());
            };
        });
    }

    // All rows by one block of columns. The logits of a panel of rows lie in `work` behind the panels of w, one segment
    // for each tile.
    void one_block(std::size_t block, std::size_t slot, Real* work) {
        const std::size_t first = block * m_plan.columns;
        const std::size_t columns = std::min(m_plan.columns, m_o.vocab - first);
        const std::size_t width = m_kernel.width;
        const std::size_t height = m_kernel.height;
        const std::size_t tiles = blocks_of(columns, width);
        const View w = m_o.layout == Layout::hv ? View{m_o.w, m_o.vocab, 1} : View{m_o.w, 1, m_o.hidden};
        Real* logits = work + m_plan.panel_size();
        m_product.pack_panels(w, first, columns, width, work);
        const std::size_t whole = m_product.depth();
        const std::size_t kept = m_kept.rows(columns);
        for (std::size_t i = 0; i < m_rows; i += height) {
            for (std::size_t h = 0; h < whole; h += m_plan.depth) {
                const std::size_t depth = std::min(m_plan.depth, whole - h);
                for (std::size_t t = 0; t < tiles; ++t) {
                    m_product.multiply(m_x.get() + i * whole + h * height, work + (t * whole + h) * width, depth,
                                       logits + t * height * width, width, h > 0);
                }
            }
            for (std::size_t y = 0; y < std::min(height, m_rows - i); ++y) {
                const Row<Real> row{logits + y * width, width, height * width, columns};
                m_partial[slot * m_plan.rows + i + y] = partial_of(row, i + y, first);
                if (m_row + i + y < kept) m_kept.put(row, m_row + i + y, first);
            }
        }
    }

    Partial<Real> partial_of(const Row<Real>& row, std::size_t i, std::size_t first) {
        round_logits(m_o, row, m_row + i);
        const RowSum<Real> sums = m_kernel.sum(row, static_cast<Real>(m_o.soft_cap));
        Partial<Real> p{sums.largest, sums.sum, -std::numeric_limits<Real>::infinity(), -1};
        const std::int64_t label = m_o.labels == nullptr ? -1 : m_o.labels[m_row + i];
        const auto column = static_cast<std::size_t>(label) - first;
        if (label >= static_cast<std::int64_t>(first) && column < row.columns) {
            p.label = row.at[column / row.width * row.stride + column % row.width];
        }
        if (m_out.argmax != nullptr) p.argmax = static_cast<std::int64_t>(first + first_of(row, sums.largest));
        return p;
    }

    void finish(const Running& running, std::size_t row) {
        const double lse = running.largest + std::log(running.sum);
        if (m_out.lse != nullptr) m_out.lse[row] = static_cast<Real>(lse);
        // The difference of the rounded lse, as every kernel takes it, would lose what is left of a small loss.
        if (m_out.loss != nullptr) m_out.loss[row] = static_cast<Real>(lse - running.label);
        if (m_out.argmax != nullptr) m_out.argmax[row] = running.argmax;
        if (m_out.largest != nullptr) m_out.largest[row] = static_cast<Real>(running.largest);
    }

    const Operands& m_o;
    const Rows<Real>& m_out;
    const Run& m_run;
    RowKernel<Real> m_kernel;
    Product<Real> m_product;
    Plan m_plan;
    KeptLogits<Real> m_kept;
    Aligned<Real> m_x;                     // panels of rows: [H][height] each
    std::vector<Partial<Real>> m_partial;  // [block][row]
    std::size_t m_row = 0, m_rows = 0;     // the rows at work
};

}  // namespace

template <class Real>
void forward(const Operands& operands, const Rows<Real>& rows, const Run& run, const Gradient<Real>& keep_in) {
    Forward<Real>(operands, rows, run, keep_in).go();
}

template void forward<float>(const Operands&, const Rows<float>&, const Run&, const Gradient<float>&);
template void forward<double>(const Operands&, const Rows<double>&, const Run&, const Gradient<double>&);

}  // namespace gdnctl::oracle::linear_ce
