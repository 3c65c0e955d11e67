// Panels of matrices in the order in which a tile reads them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

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
