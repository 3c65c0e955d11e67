// Both gradients in one sweep over the vocabulary. A window of columns is multiplied twice over: first each of its
// blocks gives delta and gw (a task is a block), then the window's delta and w^T are added to gx (a task is some rows
// and hidden dimensions). No sum crosses a task, so the bits do not depend on who does which.
#include <algorithm>
#include <cstring>

#include "oracle/linear_ce/kernels/kept.h"
#include "oracle/linear_ce/kernels/packing.h"
#include "oracle/linear_ce/kernels/passes.h"
#include "oracle/linear_ce/kernels/plan.h"
#include "oracle/linear_ce/kernels/product.h"
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
          m_plan(m_kernel, operands.batch, operands.hidden, run.block, m_product.in_pairs()),
          m_panels(blocks_of(operands.hidden, m_kernel.width)) {
        m_window = std::min(m_plan.window, rounded_up(operands.vocab, m_plan.columns));
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
    static constexpr std::size_t k_most_columns = 32;  // of a tile whose products are of pairs

    bool stopped() const { return m_run.stop && m_run.stop(); }
    std::size_t height() const { return m_kernel.height; }
    std::size_t width() const { return m_kernel.width; }
    std::size_t padded_hidden() const { return rounded_up(m_o.hidden, height()); }
    bool all_rows_at_once() const { return m_o.batch <= m_plan.rows; }
    // What a task of sweep() works in: delta, the pairs of its rows, and a tile of gw.
    std::size_t pairs_at() const { return m_plan.rows * m_plan.block; }
    std::size_t tile_at() const { return pairs_at() + (m_product.in_pairs() ? row_depth() * m_plan.block : 0); }
    // Of sums over rows and over the columns of a window. A window and a block have whole pairs.
    std::size_t row_depth() const { return m_product.depth_of(m_plan.rows); }
    std::size_t window_depth() const { return m_product.depth_of(m_window); }
    std::size_t window_room() const { return m_window / m_plan.columns * m_plan.block; }
    View w() const { return m_o.layout == Layout::hv ? View{m_o.w, m_o.vocab, 1} : View{m_o.w, 1, m_o.hidden}; }

    void allocate() {
        m_x = aligned<Real>(m_plan.rows * m_product.depth());
        // Where all logits were kept, they are not computed again.
        if (m_kept.rows(m_plan.columns) < m_o.batch || m_kept.rows(m_o.vocab % m_plan.columns) < m_o.batch) {
            m_w = aligned<Real>(m_product.depth() * window_room());
        }
        if (m_gw.wanted()) {
            m_xt = aligned<Real>(row_depth() * padded_hidden());
            if (!all_rows_at_once()) m_sum = aligned<Real>(padded_hidden() * window_room());
        }
        if (!m_gx.wanted()) return;
        m_wt = aligned<Real>(m_panels * width() * window_depth());
        m_delta_t = aligned<Real>(m_plan.rows * window_depth());
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
                    m_product.pack_part(x, m_row, m_rows, h, std::min(height(), m_o.hidden - h), height(), 0,
                                        m_xt.get() + h * row_depth());
                }
            };
        });
    }

    // delta of all blocks of the window, and what they give gw.
    void sweep() {
        const std::size_t size = tile_at() + height() * width();
        run_tasks(blocks_of(m_columns, m_plan.columns), m_run.threads, [&] {
            return [&, delta = aligned<Real>(size)](std::size_t task) {
                if (!stopped()) one_block(task, delta.get());
            };
        });
    }

    void one_block(std::size_t task, Real* delta) {
        const std::size_t at = task * m_plan.columns;
        const std::size_t columns = std::min(m_plan.columns, m_columns - at);
        Real* panels = m_w == nullptr ? nullptr : m_w.get() + task * m_plan.block * m_product.depth();
        const std::size_t kept = m_kept.rows(columns);
        if (m_row == 0) {
            if (kept < m_o.batch) m_product.pack_panels(w(), m_first + at, columns, width(), panels);
            if (m_gx.wanted()) {
                m_product.pack_part(transposed(w()), m_first + at, columns, 0, m_o.hidden, width(),
                                    window_depth() * width(), m_wt.get() + m_product.depth_of(at) * width());
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
            }
            if (m_gx.wanted()) keep_transposed(delta, columns, at, i, rows);
            if (m_product.in_pairs() && m_gw.wanted()) pair_rows(i, rows, tiles, delta);
        }
        if (m_gw.wanted()) add_to_gw(task, columns, delta);
    }

    // Rows [i, i + rows) of delta, two and two; segment t of the pairs is [row_depth()][width].
    void pair_rows(std::size_t i, std::size_t rows, std::size_t tiles, Real* delta) const {
        Real* pairs = delta + pairs_at();
        for (std::size_t t = 0; t < tiles; ++t) {
            for (std::size_t y = 0; y < rows; y += 2) {
                const Real* first = delta + (t * m_plan.rows + i + y) * width();
                m_kernel.pair(first, y + 1 < rows ? first + width() : nullptr,
                              pairs + (t * row_depth() + (i + y) / 2) * width());
            }
        }
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
        if (!capped) round_logits(m_o, row, i);
        if (cap > 0 && !capped) m_kernel.sum(row, cap);
        RowCotangent<Real> c;
        c.value = m_cotangents.lse[i];
        c.loss = static_cast<Real>(m_cotangents.d_loss[i]);
        c.lse = static_cast<Real>(m_cotangents.d_lse[i]);
        // Wraps around, far beyond any column, for labels before this block.
        c.label = static_cast<std::size_t>(m_o.labels[i]) - first;
        m_kernel.delta(row, cap, c);
        if (m_round == RoundDelta::no) return;
        change_each(row, [this](Real x) {
            const auto narrow = static_cast<float>(x);
            return static_cast<Real>(m_round == RoundDelta::bf16 ? widened(narrowed(narrow)) : rounded_to_tf32(narrow));
        });
    }

    // delta of the rows [i, i + rows), for the product with w^T.
    void keep_transposed(const Real* delta, std::size_t columns, std::size_t at, std::size_t i, std::size_t rows) {
        Real* to = m_delta_t.get() + i * window_depth() + m_product.depth_of(at) * height();
        for (std::size_t column = 0; column < columns; column += width()) {
            const std::size_t count = std::min(width(), columns - column);
            const Real* from = delta + (column / width() * m_plan.rows + i) * width();
            if (m_product.in_pairs()) {
                for (std::size_t y = 0; y < rows; ++y)
                    narrow_lane(from + y * width(), count, to + column / 2 * height() + y);
                continue;
            }
            const std::size_t squares = rows == height() && height() % k_square == 0 ? count / k_square * k_square : 0;
            for (std::size_t y = 0; y < rows; y += k_square) {
                for (std::size_t c = 0; c < squares; c += k_square) {
                    transpose_square(from + y * width() + c, width(), to + (column + c) * height() + y, height());
                }
            }
            for (std::size_t y = 0; y < rows; ++y) {
                for (std::size_t c = squares; c < count; ++c) to[(column + c) * height() + y] = from[y * width() + c];
            }
        }
    }

    // Two and two elements of a row, `height` apart.
    void narrow_lane(const Real* from, std::size_t count, Real* to) const {
        Bf16 halves[k_most_columns];
        m_kernel.narrow(from, halves);
        if (count % 2 != 0) halves[count] = {};
        for (std::size_t c = 0; c < count; c += 2) std::memcpy(to + c / 2 * height(), halves + c, 2 * sizeof(Bf16));
    }

    void add_to_gw(std::size_t task, std::size_t columns, Real* delta) {
        const bool last = m_row + m_rows == m_o.batch;
        const bool once = all_rows_at_once();
        const std::size_t whole = m_product.depth_of(m_rows);
        const Real* rows = delta + (m_product.in_pairs() ? pairs_at() : 0);
        for (std::size_t h = 0; h < m_o.hidden; h += height()) {
            for (std::size_t t = 0; t < blocks_of(columns, width()); ++t) {
                const std::size_t v = m_first + task * m_plan.columns + t * width();
                const std::size_t across = std::min(width(), columns - t * width());
                const bool full = h + height() <= m_o.hidden && across == width();
                // Whole sums of whole tiles need no other place than their own.
                const bool in_place = once && full && m_o.layout == Layout::hv && m_gw.data != nullptr;
                Real* sum = in_place ? m_gw.data + h * m_o.vocab + v : once ? delta + tile_at() : sum_of(task, h, t);
                const std::size_t stride = in_place ? m_o.vocab : width();
                for (std::size_t b = 0; b < whole; b += m_plan.depth) {
                    m_product.multiply(m_xt.get() + h * row_depth() + b * height(),
                                       rows + (t * row_depth() + b) * width(), std::min(m_plan.depth, whole - b), sum,
                                       stride, m_row > 0 || b > 0);
                }
                if (last && !in_place) write_gw(sum, h, v, across);
            }
        }
    }

    Real* sum_of(std::size_t task, std::size_t h, std::size_t t) const {
        const std::size_t tiles = m_plan.block / width();
        return m_sum.get() + task * m_plan.block * padded_hidden() + (h / height() * tiles + t) * height() * width();
    }

    void write_gw(const Real* tile, std::size_t h, std::size_t v, std::size_t columns) {
        const std::size_t rows = std::min(height(), m_o.hidden - h);
        for (std::size_t y = 0; y < rows; ++y) {
            const Real* from = tile + y * width();
            const std::size_t place = (h + y) * m_o.vocab + v;
            if (m_o.layout == Layout::hv && m_gw.data != nullptr) {
                std::copy_n(from, columns, m_gw.data + place);
                continue;
            }
            if (m_o.layout == Layout::hv && m_product.in_pairs()) {
                Bf16 halves[k_most_columns];
                m_kernel.narrow(from, halves);
                std::copy_n(halves, columns, m_gw.narrow + place);
                continue;
            }
            for (std::size_t x = 0; x < columns; ++x) {
                const bool hv = m_o.layout == Layout::hv;
                put(m_gw, hv ? place + x : (v + x) * m_o.hidden + h + y, from[x]);
            }
        }
    }

    // A task is some rows by some hidden dimensions. Part by part of the window, so that a panel of w^T is in a cache
    // for all its rows.
    void add_to_gx() {
        constexpr std::size_t k_panels = 4;
        const std::size_t rows = 8 * height();
        const std::size_t groups = blocks_of(m_panels, k_panels);
        const std::size_t all = m_product.depth_of(m_columns);
        run_tasks(blocks_of(m_rows, rows) * groups, m_run.threads, [&] {
            return [&, tile = aligned<Real>(height() * width())](std::size_t task) {
                const std::size_t first = task / groups * rows;
                const std::size_t end = std::min(first + rows, m_rows);
                const std::size_t panel = task % groups * k_panels;
                for (std::size_t v = 0; v < all; v += m_plan.depth) {
                    for (std::size_t p = panel; p < std::min(panel + k_panels, m_panels); ++p) {
                        for (std::size_t i = first; i < end; i += height()) {
                            add_tile_to_gx(i, p, v, std::min(m_plan.depth, all - v), tile.get());
                        }
                    }
                }
            };
        });
    }

    void add_tile_to_gx(std::size_t i, std::size_t panel, std::size_t v, std::size_t depth, Real* tile) {
        const std::size_t h = panel * width();
        const std::size_t rows = std::min(height(), m_rows - i);
        const std::size_t columns = std::min(width(), m_o.hidden - h);
        const bool whole = rows == height() && columns == width();
        const bool add = m_first > 0 || v > 0;
        Real* gx = (m_gx.narrow != nullptr ? m_wide_gx.get() : m_gx.data) + (m_row + i) * m_o.hidden + h;
        for (std::size_t y = 0; y < rows && add && !whole; ++y) {
            std::copy_n(gx + y * m_o.hidden, columns, tile + y * width());
        }
        m_product.multiply(m_delta_t.get() + i * window_depth() + v * height(),
                           m_wt.get() + (panel * window_depth() + v) * width(), depth, whole ? gx : tile,
                           whole ? m_o.hidden : width(), add);
        for (std::size_t y = 0; y < rows && !whole; ++y) {
            std::copy_n(tile + y * width(), columns, gx + y * m_o.hidden);
        }
    }

    const Operands& m_o;
    const Cotangents<Real>& m_cotangents;
    const Gradient<Real>&m_gx, &m_gw;
    RoundDelta m_round;
    const Run& m_run;
    RowKernel<Real> m_kernel;
    Product<Real> m_product;
    KeptLogits<Real> m_kept;
    Plan m_plan;
    std::size_t m_panels;                    // of w^T: hidden dimensions by `width`
    std::size_t m_window = 0;                // columns between two sums into gx
    std::size_t m_first = 0, m_columns = 0;  // the window at work
    std::size_t m_row = 0, m_rows = 0;       // the rows at work
    Aligned<Real> m_x, m_xt;                 // panels [H][height] of rows, [rows][height] of hidden dimensions
    Aligned<Real> m_w, m_wt;                 // panels [H][width] of columns, [window][width] of hidden dimensions
    Aligned<Real> m_delta_t;                 // panels [window][height] of rows
    Aligned<Real> m_sum;                     // gw of the window, in tiles, while rows are to come
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
