// The passes over x and w: packing into panels, the forward, and the gradients.
#include "oracle/linear_ce/kernels/passes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "oracle/linear_ce/kernels/row_kernel.h"
#include "oracle/simd/tasks.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "oracle/simd/aligned.h"
#include "oracle/simd/values.h"

namespace gdnctl::oracle::linear_ce {

inline std::size_t blocks_of(std::size_t count, std::size_t size) { return (count + size - 1) / size; }
inline std::size_t rounded_up(std::size_t count, std::size_t size) { return blocks_of(count, size) * size; }

// A matrix whose element (i, j) lies at i * row + j * column.
struct View {
    ConstValues values;
    std::size_t row = 0, column = 0;
};

inline float as_float(float x) { return x; }
inline float as_float(Bf16 x) { return widened(x); }

// Four rows of four elements, `stride` apart, as four columns `stride_to` apart.
constexpr std::size_t k_square = 4;
template <class Real>
void transpose_square(const Real* from, std::size_t stride, Real* to, std::size_t stride_to) {
    for (std::size_t r = 0; r < k_square; ++r) {
        for (std::size_t c = 0; c < k_square; ++c) to[c * stride_to + r] = from[r * stride + c];
    }
}
#if defined(__SSE2__)
template <>
inline void transpose_square<float>(const float* from, std::size_t stride, float* to, std::size_t stride_to) {
    __m128 a = _mm_loadu_ps(from);
    __m128 b = _mm_loadu_ps(from + stride);
    __m128 c = _mm_loadu_ps(from + 2 * stride);
    __m128 d = _mm_loadu_ps(from + 3 * stride);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + stride_to, b);
    _mm_storeu_ps(to + 2 * stride_to, c);
    _mm_storeu_ps(to + 3 * stride_to, d);
}
#endif

// Element (i, j) of a matrix, `lanes` of them by j, zeros up to `width`.
template <class Real, class Stored>
void pack_lanes(const Stored* from, std::size_t column, std::size_t lanes, std::size_t width, Real* to) {
    for (std::size_t j = 0; j < lanes; ++j) to[j] = static_cast<Real>(as_float(from[j * column]));
    for (std::size_t j = lanes; j < width; ++j) to[j] = 0;
}

// Rows of a matrix lie far apart, where no processor fetches ahead by itself.
constexpr std::size_t k_rows_ahead = 8;
inline void prefetch(const void* from, std::size_t bytes) {
    constexpr std::size_t k_line = 64;
    for (std::size_t at = 0; at < bytes; at += k_line) __builtin_prefetch(static_cast<const char*>(from) + at, 0, 2);
}

// Columns that lie `column` apart, elements [k, end) of them, into lanes of a panel; how many columns were done.
template <class Real>
std::size_t pack_squares(const Real* from, std::size_t column, std::size_t k, std::size_t end, std::size_t columns,
                         std::size_t width, Real* panel) {
    if ((end - k) % k_square != 0) return 0;
    const std::size_t whole = columns / k_square * k_square;
    for (std::size_t c = 0; c < whole; c += k_square) {
        for (std::size_t ahead = c + k_rows_ahead; ahead < std::min(c + k_rows_ahead + k_square, columns); ++ahead) {
            prefetch(from + ahead * column + k, (end - k) * sizeof(Real));
        }
        for (std::size_t x = k; x < end; x += k_square) {
            transpose_square(from + c * column + x, column, panel + x * width + c, width);
        }
    }
    return whole;
}

// Rows [i, i + depth) by columns [j, j + columns) as panels of `width` columns: panel p has element (k, c) at
// p * stride + k * width + c. Missing columns are 0.
template <class Real, class Stored>
void pack(const Stored* data, const View& view, std::size_t i, std::size_t depth, std::size_t j, std::size_t columns,
          std::size_t width, std::size_t stride, Real* to) {
    const auto one = [&](std::size_t k, std::size_t p) {
        const Stored* from = data + (i + k) * view.row + (j + p * width) * view.column;
        pack_lanes(from, view.column, std::min(width, columns - p * width), width, to + p * stride + k * width);
    };
    const std::size_t panels = blocks_of(columns, width);
    if (view.column == 1) {  // along the rows, which is how they lie
        for (std::size_t k = 0; k < depth; ++k) {
            if (k + k_rows_ahead < depth) {
                prefetch(data + (i + k + k_rows_ahead) * view.row + j, columns * sizeof(Stored));
            }
            for (std::size_t p = 0; p < panels; ++p) one(k, p);
        }
        return;
    }
    // Down the columns, some at a time, so that a cache line is fully used while it is in the cache.
    constexpr std::size_t k_run = 64;
    for (std::size_t p = 0; p < panels; ++p) {
        for (std::size_t k = 0; k < depth; k += k_run) {
            const std::size_t end = std::min(depth, k + k_run);
            const std::size_t lanes = std::min(width, columns - p * width);
            std::size_t done = 0;
            if constexpr (std::is_same_v<Real, Stored>) {
                if (view.row == 1) {
                    done = pack_squares(data + (j + p * width) * view.column + i, view.column, k, end, lanes, width,
                                        to + p * stride);
                }
            }
            for (std::size_t c = done; c < width; ++c) {
                Real* lane = to + p * stride + c;
                if (c >= lanes) {
                    for (std::size_t x = k; x < end; ++x) lane[x * width] = 0;
                    continue;
                }
                const Stored* from = data + (j + p * width + c) * view.column + i * view.row;
                if (c + k_rows_ahead < lanes) {
                    prefetch(from + k_rows_ahead * view.column + k * view.row, (end - k) * sizeof(Stored));
                }
                for (std::size_t x = k; x < end; ++x) lane[x * width] = static_cast<Real>(as_float(from[x * view.row]));
            }
        }
    }
}

template <class Real>
void pack(const View& view, std::size_t i, std::size_t depth, std::size_t j, std::size_t columns, std::size_t width,
          std::size_t stride, Real* to) {
    if (view.values.storage == Storage::f32) {
        pack(static_cast<const float*>(view.values.data), view, i, depth, j, columns, width, stride, to);
    } else {
        pack(static_cast<const Bf16*>(view.values.data), view, i, depth, j, columns, width, stride, to);
    }
}

// As pack(), of bf16 in pairs: element (k, c) of a panel holds the elements (i + 2 k, j + c) and (i + 2 k + 1, j + c),
// the first in the lower half. `depth` counts elements; an odd one out is paired with 0.
inline void pack_pairs(const View& view, std::size_t i, std::size_t depth, std::size_t j, std::size_t columns,
                       std::size_t width, std::size_t stride, float* to) {
    const auto* data = static_cast<const std::uint16_t*>(view.values.data);
    const std::size_t pairs = blocks_of(depth, 2);
    constexpr std::size_t k_run = 32;  // pairs at a time, so that a cache line is fully used while it is in the cache
    const bool along = view.column == 1;
    for (std::size_t k = 0; k < pairs; k += along ? 1 : k_run) {
        const std::size_t end = std::min(pairs, k + (along ? 1 : k_run));
        if (along && 2 * (k + k_rows_ahead) + 1 < depth) {
            for (std::size_t row = 2 * (k + k_rows_ahead); row < 2 * (k + k_rows_ahead) + 2; ++row) {
                prefetch(data + (i + row) * view.row + j, columns * sizeof(Bf16));
            }
        }
        for (std::size_t p = 0; p * width < columns; ++p) {
            const std::size_t lanes = std::min(width, columns - p * width);
            float* panel = to + p * stride;
            const std::uint16_t* corner = data + i * view.row + (j + p * width) * view.column;
            for (std::size_t c = 0; !along && c < lanes; ++c) {
                const std::uint16_t* from = corner + c * view.column;
                if (c + k_rows_ahead < lanes) prefetch(from + k_rows_ahead * view.column + 2 * k, 4 * (end - k));
                for (std::size_t x = k; x < end; ++x) {
                    const std::uint32_t high = 2 * x + 1 < depth ? from[(2 * x + 1) * view.row] : 0;
                    panel[x * width + c] = std::bit_cast<float>(from[2 * x * view.row] | high << 16U);
                }
            }
            if (along) {
                const std::uint16_t* low = corner + 2 * k * view.row;
                const bool both = 2 * k + 1 < depth;
                const std::uint16_t* high = both ? low + view.row : low;
                const std::uint32_t mask = both ? 0xFFFF0000U : 0;
                for (std::size_t c = 0; c < lanes; ++c) {
                    panel[k * width + c] =
                        std::bit_cast<float>(low[c] | (static_cast<std::uint32_t>(high[c]) << 16U & mask));
                }
            }
            for (std::size_t x = k; x < end; ++x) std::fill(panel + x * width + lanes, panel + (x + 1) * width, 0.0F);
        }
    }
}

inline View transposed(const View& view) { return {view.values, view.column, view.row}; }

}  // namespace gdnctl::oracle::linear_ce

namespace gdnctl::oracle::linear_ce {

namespace {

// How large the blocks are. All of it follows from the shape and the tile alone, never from the number of threads.

struct Plan {
    std::size_t columns = 0;  // of the vocabulary that one task multiplies: a block
    std::size_t block = 0;    // room for them: whole tiles
    std::size_t window = 0;   // columns between two sums into gx: whole blocks
    std::size_t rows = 0;     // rows at a time: whole tiles
    std::size_t depth = 0;    // factors of a product before its tile is put down
    std::size_t hidden = 0;
    std::size_t height = 0;  // of a tile

    template <class Real>
    Plan(const RowKernel<Real>& kernel, std::size_t batch, std::size_t hidden_size, std::size_t wanted_block,
         bool pairs)
        : depth(k_depth), hidden(hidden_size), height(kernel.height) {
        constexpr std::size_t k_elements = k_scratch / sizeof(Real);
        const std::size_t own = std::clamp(k_elements / 8 / (4 * hidden), std::size_t{1}, k_block);
        columns = wanted_block > 0 ? rounded_up(wanted_block, pairs ? 2 : 1) : rounded_up(own, kernel.width);
        block = rounded_up(columns, kernel.width);
        rows = std::clamp(k_elements / 4 / (2 * hidden + block), std::size_t{1}, k_rows);
        rows = rounded_up(std::min(rows, batch), kernel.height);
        window = std::clamp(k_elements / 3 / (hidden + rows) / block, std::size_t{1}, k_blocks) * columns;
    }

    std::size_t padded_rows() const { return rows; }
    std::size_t panel_size() const { return hidden * block; }

private:
    static constexpr std::size_t k_scratch = std::size_t{48} << 20U;  // bytes, about
    static constexpr std::size_t k_block = 256;
    static constexpr std::size_t k_blocks = 16;  // of a window: a number that threads can share
    static constexpr std::size_t k_rows = 2048;
    static constexpr std::size_t k_depth = 512;
};

// The products of a pass: of fp32 panels, or of bf16 pairs where x and w are bf16 and the processor multiplies them.

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

// Logits that the first pass leaves for the second, in the array that gw will fill: those of a block of columns lie
// where the block's part of gw will be. So nothing is overwritten before it was used, whatever the order of the blocks.

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

// Rows' sums, block by block of the vocabulary. A task is one block for some rows; what the blocks give a row is added
// up in the order of the vocabulary, whoever computed it.

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

// Both gradients in one sweep over the vocabulary. A window of columns is multiplied twice over: first each of its
// blocks gives delta and gw (a task is a block), then the window's delta and w^T are added to gx (a task is some rows
// and hidden dimensions). No sum crosses a task, so the bits do not depend on who does which.

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
