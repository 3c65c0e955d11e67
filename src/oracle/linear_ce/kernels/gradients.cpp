// Both gradients in one sweep over the vocabulary. A window of columns is multiplied twice over: first each of its
// blocks gives delta and gw (a task is a block), then the window's delta and w^T are added to gx (a task is some rows
// and hidden dimensions). No sum crosses a task, so the bits do not depend on who does which.
#include <algorithm>
#include <type_traits>

#include "oracle/linear_ce/kernels/kept.h"
#include "oracle/linear_ce/kernels/logits_product.h"
#include "oracle/linear_ce/kernels/packing.h"
#include "oracle/linear_ce/kernels/passes.h"
#include "oracle/linear_ce/kernels/plan.h"
#include "oracle/linear_ce/kernels/row_kernel.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::linear_ce {

namespace {

template <class Real>
void put(const Gradient<Real>& to, std::size_t at, Real value) {
    if (to.data != nullptr) {
        to.data[at] = value;
    } else {
        to.narrow[at] = narrowed(static_cast<float>(value));
    }
}

template <class Real>
class Gradients {
public:
    Gradients(const Operands& operands, const Cotangents<Real>& cotangents, const Gradient<Real>& gx,
              const Gradient<Real>& gw, const GradientsHow& how, const Run& run)
        : m_o(operands),
          m_cotangents(cotangents),
          m_gx(gx),
          m_gw(gw),
          m_round(how.round_delta),
          m_run(run),
          m_kernel(row_kernel<Real>(run.isa)),
          m_product(operands, m_kernel),
          m_kept(operands, how.kept ? gw : Gradient<Real>{}, m_kernel.width),
          m_plan(m_kernel, operands.batch, operands.hidden, run.block),
          m_panels(blocks_of(operands.hidden, m_kernel.width)) {
        m_window = std::min(m_plan.window, rounded_up(operands.vocab, m_plan.block));
    }

    void go() {
        allocate();
        for (std::size_t first = 0; first < m_o.vocab; first += m_window) {
            m_first = first;
            m_columns = std::min(m_window, m_o.vocab - first);
            for (std::size_t row = 0; row < m_o.batch && !stopped(); row += m_plan.rows) {
                const bool packed = row == 0 && first == 0;
                m_row = row;
                m_rows = std::min(m_plan.rows, m_o.batch - row);
                if (packed || m_o.batch > m_plan.rows) pack_rows();
                sweep();
                if (m_gx.wanted()) add_to_gx();
            }
            if (stopped()) return;
        }
        if (m_gx.narrow != nullptr) {
            const std::size_t count = m_o.batch * m_o.hidden;
            for (std::size_t i = 0; i < count; ++i) put(m_gx, i, m_wide_gx[i]);
        }
    }

private:
    bool stopped() const { return m_run.stop && m_run.stop(); }
    std::size_t height() const { return m_kernel.height; }
    std::size_t width() const { return m_kernel.width; }
    std::size_t padded_hidden() const { return rounded_up(m_o.hidden, height()); }
    View w() const { return m_o.layout == Layout::hv ? View{m_o.w, m_o.vocab, 1} : View{m_o.w, 1, m_o.hidden}; }

    void allocate() {
        m_x = aligned<Real>(m_plan.rows * m_product.depth());
        m_w = aligned<Real>(m_product.depth() * m_window);
        if (m_gw.wanted()) {
            m_xt = aligned<Real>(m_plan.rows * padded_hidden());
            m_sum = aligned<Real>(padded_hidden() * m_window);
        }
        if (!m_gx.wanted()) return;
        m_wt = aligned<Real>(m_panels * width() * m_window);
        m_delta_t = aligned<Real>(m_plan.rows * m_window);
        if (m_gx.narrow != nullptr) m_wide_gx = aligned<Real>(m_o.batch * m_o.hidden);
    }

    // Both ways round: for the logits [H] by rows, for gw [rows] by hidden dimensions.
    void pack_rows() {
        const View x{m_o.x, m_o.hidden, 1};
        const std::size_t panels = blocks_of(m_rows, height());
        const std::size_t across = m_gw.wanted() ? blocks_of(m_o.hidden, height()) : 0;
        run_tasks(panels + across, m_run.threads, [&] {
            return [&](std::size_t task) {
                if (task < panels) {
                    const std::size_t first = task * height();
                    m_product.pack_panels(transposed(x), m_row + first, std::min(height(), m_rows - first), height(),
                                          m_x.get() + first * m_product.depth());
                } else {
                    const std::size_t h = (task - panels) * height();
                    pack(x, m_row, m_rows, h, std::min(height(), m_o.hidden - h), height(), 0,
                         m_xt.get() + h * m_plan.rows);
                }
            };
        });
    }

    // delta of all blocks of the window, and what they give gw.
    void sweep() {
        const std::size_t size = m_plan.rows * m_plan.block;
        run_tasks(blocks_of(m_columns, m_plan.block), m_run.threads, [&] {
            return [&, delta = aligned<Real>(size)](std::size_t task) {
                if (!stopped()) one_block(task * m_plan.block, delta.get());
            };
        });
    }

    void one_block(std::size_t at, Real* delta) {
        const std::size_t columns = std::min(m_plan.block, m_columns - at);
        Real* panels = m_w.get() + at * m_product.depth();
        const std::size_t kept = m_kept.rows(columns);
        if (m_row == 0) {
            if (kept < m_o.batch) m_product.pack_panels(w(), m_first + at, columns, width(), panels);
            if (m_gx.wanted()) {
                pack(transposed(w()), m_first + at, columns, 0, m_o.hidden, width(), m_window * width(),
                     m_wt.get() + at * width());
            }
        }
        const std::size_t tiles = blocks_of(columns, width());
        for (std::size_t i = 0; i < m_rows; i += height()) {
            const std::size_t rows = std::min(height(), m_rows - i);
            if (kept < m_row + i + rows) multiply_rows(i, tiles, panels, delta);
            for (std::size_t y = 0; y < rows; ++y) {
                const Row<Real> row{delta + (i + y) * width(), width(), m_plan.rows * width(), columns};
                const bool is_kept = m_row + i + y < kept;
                if (is_kept) m_kept.take(row, m_row + i + y, m_first + at);
                delta_of(row, m_row + i + y, m_first + at, is_kept);
                if (m_gx.wanted()) keep_transposed(row, at, i, y);
            }
        }
        if (m_gw.wanted()) add_to_gw(at, columns, delta);
    }

    // Logits of the rows [i, i + height) into `delta`, whose segment t is [rows][width].
    void multiply_rows(std::size_t i, std::size_t tiles, const Real* panels, Real* delta) {
        const std::size_t whole = m_product.depth();
        for (std::size_t h = 0; h < whole; h += m_plan.depth) {
            const std::size_t depth = std::min(m_plan.depth, whole - h);
            for (std::size_t t = 0; t < tiles; ++t) {
                m_product.multiply(m_x.get() + i * whole + h * height(), panels + (t * whole + h) * width(), depth,
                                   delta + (t * m_plan.rows + i) * width(), width(), h > 0);
            }
        }
    }

    void delta_of(const Row<Real>& row, std::size_t i, std::size_t first, bool capped) {
        const auto cap = static_cast<Real>(m_o.soft_cap);
        if (cap > 0 && !capped) m_kernel.sum(row, cap);
        RowCotangent<Real> c;
        c.value = m_cotangents.lse[i];
        c.loss = static_cast<Real>(m_cotangents.d_loss[i]);
        c.lse = static_cast<Real>(m_cotangents.d_lse[i]);
        // Wraps around, far beyond any column, for labels before this block.
        c.label = static_cast<std::size_t>(m_o.labels[i]) - first;
        m_kernel.delta(row, cap, c);
        if (!m_round) return;
        for (std::size_t column = 0; column < row.columns; ++column) {
            Real& x = row.at[column / row.width * row.stride + column % row.width];
            x = static_cast<Real>(widened(narrowed(static_cast<float>(x))));
        }
    }

    void keep_transposed(const Row<Real>& row, std::size_t at, std::size_t i, std::size_t y) {
        Real* to = m_delta_t.get() + i * m_window + at * height() + y;
        for (std::size_t column = 0; column < row.columns; column += row.width) {
            const Real* from = row.at + column / row.width * row.stride;
            const std::size_t count = std::min(row.width, row.columns - column);
            for (std::size_t c = 0; c < count; ++c) to[(column + c) * height()] = from[c];
        }
    }

    void add_to_gw(std::size_t at, std::size_t columns, const Real* delta) {
        const std::size_t tile = height() * width();
        const bool last = m_row + m_rows == m_o.batch;
        for (std::size_t h = 0; h < m_o.hidden; h += height()) {
            for (std::size_t t = 0; t < blocks_of(columns, width()); ++t) {
                Real* sum = m_sum.get() + at * padded_hidden() + (h / height() * (m_plan.block / width()) + t) * tile;
                for (std::size_t b = 0; b < m_rows; b += m_plan.depth) {
                    m_kernel.multiply(m_xt.get() + h * m_plan.rows + b * height(),
                                      delta + (t * m_plan.rows + b) * width(), std::min(m_plan.depth, m_rows - b), sum,
                                      width(), m_row > 0 || b > 0);
                }
                if (last) write_gw(sum, h, m_first + at + t * width());
            }
        }
    }

    void write_gw(const Real* tile, std::size_t h, std::size_t v) {
        const std::size_t rows = std::min(height(), m_o.hidden - h);
        const std::size_t columns = std::min(width(), m_o.vocab - v);
        for (std::size_t y = 0; y < rows; ++y) {
            const Real* from = tile + y * width();
            if (m_o.layout == Layout::hv && m_gw.data != nullptr) {
                std::copy_n(from, columns, m_gw.data + (h + y) * m_o.vocab + v);
                continue;
            }
            for (std::size_t x = 0; x < columns; ++x) {
                const bool hv = m_o.layout == Layout::hv;
                put(m_gw, hv ? (h + y) * m_o.vocab + v + x : (v + x) * m_o.hidden + h + y, from[x]);
            }
        }
    }

    void add_to_gx() {
        constexpr std::size_t k_panels = 4;  // of a task
        const std::size_t groups = blocks_of(m_panels, k_panels);
        run_tasks(blocks_of(m_rows, height()) * groups, m_run.threads, [&] {
            return [&, tile = aligned<Real>(height() * width())](std::size_t task) {
                const std::size_t begin = task % groups * k_panels;
                const std::size_t end = std::min(begin + k_panels, m_panels);
                for (std::size_t p = begin; p < end; ++p) add_tile_to_gx(task / groups * height(), p, tile.get());
            };
        });
    }

    void add_tile_to_gx(std::size_t i, std::size_t panel, Real* tile) {
        const std::size_t h = panel * width();
        const std::size_t rows = std::min(height(), m_rows - i);
        const std::size_t columns = std::min(width(), m_o.hidden - h);
        const bool whole = rows == height() && columns == width();
        Real* gx = (m_gx.narrow != nullptr ? m_wide_gx.get() : m_gx.data) + (m_row + i) * m_o.hidden + h;
        const std::size_t stride = whole ? m_o.hidden : width();
        Real* to = whole ? gx : tile;
        if (!whole) {
            for (std::size_t y = 0; y < rows && m_first > 0; ++y) {
                std::copy_n(gx + y * m_o.hidden, columns, tile + y * width());
            }
        }
        for (std::size_t v = 0; v < m_columns; v += m_plan.depth) {
            m_kernel.multiply(m_delta_t.get() + i * m_window + v * height(),
                              m_wt.get() + (panel * m_window + v) * width(), std::min(m_plan.depth, m_columns - v), to,
                              stride, m_first > 0 || v > 0);
        }
        if (whole) return;
        for (std::size_t y = 0; y < rows; ++y) std::copy_n(tile + y * width(), columns, gx + y * m_o.hidden);
    }

    const Operands& m_o;
    const Cotangents<Real>& m_cotangents;
    const Gradient<Real>&m_gx, &m_gw;
    bool m_round;
    const Run& m_run;
    RowKernel<Real> m_kernel;
    LogitsProduct<Real> m_product;
    KeptLogits<Real> m_kept;
    Plan m_plan;
    std::size_t m_panels;                    // of w^T: hidden dimensions by `width`
    std::size_t m_window = 0;                // columns between two sums into gx
    std::size_t m_first = 0, m_columns = 0;  // the window at work
    std::size_t m_row = 0, m_rows = 0;       // the rows at work
    Aligned<Real> m_x, m_xt;                 // panels [H][height] of rows, [rows][height] of hidden dimensions
    Aligned<Real> m_w, m_wt;                 // panels [H][width] of columns, [window][width] of hidden dimensions
    Aligned<Real> m_delta_t;                 // panels [window][height] of rows
    Aligned<Real> m_sum;                     // gw of the window, in tiles
    Aligned<Real> m_wide_gx;                 // [B,H], where gx is bf16
};

}  // namespace

template <class Real>
void gradients(const Operands& operands, const Cotangents<Real>& cotangents, const Gradient<Real>& gx,
               const Gradient<Real>& gw, const GradientsHow& how, const Run& run) {
    Gradients<Real>(operands, cotangents, gx, gw, how, run).go();
}

template void gradients<float>(const Operands&, const Cotangents<float>&, const Gradient<float>&,
                               const Gradient<float>&, const GradientsHow&, const Run&);
template void gradients<double>(const Operands&, const Cotangents<double>&, const Gradient<double>&,
                                const Gradient<double>&, const GradientsHow&, const Run&);

}  // namespace gdnctl::oracle::linear_ce
