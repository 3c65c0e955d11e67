// Deferred: reads a state panel by panel, each as one stream. A panel is two vectors wide, so that what is folded into
// it stays in registers.
#pragma once

#include "oracle/gdn/kernels/simd/decode_ahead.h"
#include "oracle/gdn/kernels/simd/decode_values.h"

namespace gdnctl::oracle {
namespace {

inline constexpr std::size_t k_panel_vectors = 2;

template <int Bytes>
struct DeferredPanel {
    using Vector = typename VectorOf<float, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    static constexpr std::size_t k_columns = k_panel_vectors * k_lanes;
    static constexpr std::size_t k_all = k_panel_vectors;
};

template <int Bytes>
using DeferredRow = typename VectorOf<float, Bytes>::type[k_panel_vectors];

// Rows [i, i + Rows) of a panel, with `count` writes (Count, unless that is 0); d already has its weights.
template <int Bytes, std::size_t Rows, std::size_t Count>
__attribute__((always_inline)) inline void fold_rows(const float* k, std::size_t dk, const DeferredRow<Bytes>* d,
                                                     std::size_t count, float keep, float* s) {
    using P = DeferredPanel<Bytes>;
    typename P::Vector row[Rows][P::k_all];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
        for (std::size_t v = 0; v < P::k_all; ++v) {
            row[r][v] = load<float, Bytes>(s + r * P::k_columns + v * P::k_lanes);
            if (keep != 1) row[r][v] *= keep;
        }
    }
    const std::size_t all = Count > 0 ? Count : count;
#pragma GCC unroll 8
    for (std::size_t j = 0; j < all; ++j) {
#pragma GCC unroll 8
        for (std::size_t r = 0; r < Rows; ++r) {
            const typename P::Vector factor = broadcast<Bytes>(k + j * dk + r);
#pragma GCC unroll 2
            for (std::size_t v = 0; v < P::k_all; ++v) row[r][v] += factor * d[j][v];
        }
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
        for (std::size_t v = 0; v < P::k_all; ++v) {
            store<float, Bytes>(s + r * P::k_columns + v * P::k_lanes, row[r][v]);
        }
    }
}

template <int Bytes, std::size_t Count>
void fold_all_rows(const DecodeWrites& w, const DeferredRow<Bytes>* weighed, std::size_t dk, float* panel) {
    using P = DeferredPanel<Bytes>;
    DeferredRow<Bytes> d[k_decode_most];
    for (std::size_t j = 0; j < k_decode_most; ++j) {
        for (std::size_t v = 0; v < P::k_all; ++v) d[j][v] = j < w.folded ? weighed[j][v] : typename P::Vector{};
    }
    constexpr std::size_t k_rows = 2;
    std::size_t i = 0;
    for (; i + k_rows <= dk; i += k_rows) {
        fold_rows<Bytes, k_rows, Count>(w.k + i, dk, d, w.folded, w.keep, panel + i * P::k_columns);
    }
    for (; i < dk; ++i) fold_rows<Bytes, 1, 0>(w.k + i, dk, d, w.folded, w.keep, panel + i * P::k_columns);
}

template <int Bytes>
void fold_panel(const DecodeWrites& w, std::size_t state_stride, std::size_t column, std::size_t dk, float* panel) {
    using P = DeferredPanel<Bytes>;
    DeferredRow<Bytes> weighed[k_decode_most];
    for (std::size_t j = 0; j < w.folded; ++j) {
        for (std::size_t v = 0; v < P::k_all; ++v) {
            weighed[j][v] = w.weights[j] * load<float, Bytes>(w.d + j * state_stride + column + v * P::k_lanes);
        }
    }
    if (w.folded == k_decode_most) return fold_all_rows<Bytes, k_decode_most>(w, weighed, dk, panel);
    fold_all_rows<Bytes, 0>(w, weighed, dk, panel);
}

// S^T k and S^T q of Tokens tokens from `first` on, to [token][k, q][state_stride]. One token takes two rows at a time,
// because its few sums would wait for each other.
template <int Bytes, std::size_t Tokens>
__attribute__((always_inline)) inline void panel_sums(const DecodeTask& task, const float* panel, std::size_t first,
                                                      float* sums) {
    using P = DeferredPanel<Bytes>;
    constexpr std::size_t k_rows = Tokens == 1 ? 2 : 1;
    typename P::Vector sum_k[k_rows][Tokens][P::k_all], sum_q[k_rows][Tokens][P::k_all];
#pragma GCC unroll 2
    for (std::size_t r = 0; r < k_rows; ++r) {
#pragma GCC unroll 4
        for (std::size_t t = 0; t < Tokens; ++t) {
#pragma GCC unroll 2
            for (std::size_t v = 0; v < P::k_all; ++v) sum_k[r][t][v] = sum_q[r][t][v] = typename P::Vector{};
        }
    }
    const std::size_t rows = task.dk, tokens = task.padded;
    const float *k = task.k + first, *q = task.q + first;
    const auto row = [&](std::size_t r) __attribute__((always_inline)) {
        typename P::Vector s[P::k_all];
#pragma GCC unroll 2
        for (std::size_t v = 0; v < P::k_all; ++v) s[v] = load_once<Bytes>(panel + v * P::k_lanes);
#pragma GCC unroll 4
        for (std::size_t t = 0; t < Tokens; ++t) {
            const typename P::Vector one_k = broadcast<Bytes>(k + t), one_q = broadcast<Bytes>(q + t);
#pragma GCC unroll 2
            for (std::size_t v = 0; v < P::k_all; ++v) {
                sum_k[r][t][v] += one_k * s[v];
                sum_q[r][t][v] += one_q * s[v];
            }
        }
        panel += P::k_columns;
        k += tokens;
        q += tokens;
    };
    constexpr std::size_t k_page = 4096;
    constexpr std::size_t k_page_rows = k_page / (P::k_columns * sizeof(float));
    for (std::size_t i = 0; i < rows;) {
        const std::size_t end = i + k_page_rows < rows ? i + k_page_rows : rows;
        // The processor's own prefetching ends at a page; this prefetches what follows, of this state or (mostly) the
        // next.
        if (task.far) decode_fetch(reinterpret_cast<const char*>(panel) + k_page, k_page / 8);
        for (; i + k_rows <= end; i += k_rows) {
            row(0);
            if constexpr (k_rows == 2) row(1);
        }
        if (i < end) {
            row(0);
            ++i;
        }
    }
    sums += 2 * first * task.state_stride;
#pragma GCC unroll 4
    for (std::size_t t = 0; t < Tokens; ++t, sums += 2 * task.state_stride) {
#pragma GCC unroll 2
        for (std::size_t v = 0; v < P::k_all; ++v) {
            if constexpr (k_rows == 2) {
                sum_k[0][t][v] += sum_k[1][t][v];
                sum_q[0][t][v] += sum_q[1][t][v];
            }
            store<float, Bytes>(sums + v * P::k_lanes, sum_k[0][t][v]);
            store<float, Bytes>(sums + task.state_stride + v * P::k_lanes, sum_q[0][t][v]);
        }
    }
}

// Both at once for one token: Count writes are added to each row, which then feeds the sums. From Count = 2 on, there
// is enough work between two additions to one sum.
template <int Bytes, std::size_t Count>
void fold_and_sum(const DecodeTask& task, std::size_t column, float* panel, float* sums) {
    using P = DeferredPanel<Bytes>;
    const DecodeWrites& w = task.writes;
    typename P::Vector d[Count][P::k_all], sum_k[P::k_all], sum_q[P::k_all];
#pragma GCC unroll 8
    for (std::size_t j = 0; j < Count; ++j) {
#pragma GCC unroll 2
        for (std::size_t v = 0; v < P::k_all; ++v) {
            d[j][v] = w.weights[j] * load<float, Bytes>(w.d + j * task.state_stride + column + v * P::k_lanes);
        }
    }
#pragma GCC unroll 2
    for (std::size_t v = 0; v < P::k_all; ++v) sum_k[v] = sum_q[v] = typename P::Vector{};
    const float keep = w.keep;
    const float *k = task.k, *q = task.q, *before = w.k;
    const std::size_t dk = task.dk;
    for (std::size_t i = 0; i < dk; ++i, panel += P::k_columns) {
        // Broadcast the factors before any store, because the compiler must assume that a store changes them.
        const typename P::Vector one_k = broadcast<Bytes>(k + i), one_q = broadcast<Bytes>(q + i);
        typename P::Vector s[P::k_all];
#pragma GCC unroll 2
        for (std::size_t v = 0; v < P::k_all; ++v) {
            s[v] = load<float, Bytes>(panel + v * P::k_lanes);
            if (keep != 1) s[v] *= keep;
        }
#pragma GCC unroll 8
        for (std::size_t j = 0; j < Count; ++j) {
            const typename P::Vector factor = broadcast<Bytes>(before + j * dk + i);
#pragma GCC unroll 2
            for (std::size_t v = 0; v < P::k_all; ++v) s[v] += factor * d[j][v];
        }
#pragma GCC unroll 2
        for (std::size_t v = 0; v < P::k_all; ++v) {
            store<float, Bytes>(panel + v * P::k_lanes, s[v]);
            sum_k[v] += one_k * s[v];
            sum_q[v] += one_q * s[v];
        }
    }
#pragma GCC unroll 2
    for (std::size_t v = 0; v < P::k_all; ++v) {
        store<float, Bytes>(sums + v * P::k_lanes, sum_k[v]);
        store<float, Bytes>(sums + task.state_stride + v * P::k_lanes, sum_q[v]);
    }
}

// d and out of token t from the writes of its sources, in Vectors vectors at `column`.
template <int Bytes, std::size_t Vectors>
__attribute__((always_inline)) inline void finish_columns(const DecodeTask& task, std::size_t t, std::size_t column,
                                                          const float* sums) {
    using Vector = typename VectorOf<float, Bytes>::type;
    constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    const DecodeFactors& f = task.factors[t];
    const std::size_t sources = task.writes.count + t, stride = task.state_stride;
    float* own = task.writes.d + column;
    const float* with_k = sums + 2 * t * stride + column;
    Vector d[Vectors], o[Vectors];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < Vectors; ++v) {
        d[v] = f.from_state * load<float, Bytes>(with_k + v * k_lanes);
        o[v] = f.out_state * load<float, Bytes>(with_k + stride + v * k_lanes);
        if (f.beta != 0) d[v] += f.beta * decode_value<Bytes>(task, t, column + v * k_lanes);
    }
    for (std::size_t j = 0; j < sources; ++j) {
        const Vector in_d = broadcast<Bytes>(&f.in_d[j]), in_o = broadcast<Bytes>(&f.in_o[j]);
#pragma GCC unroll 4
        for (std::size_t v = 0; v < Vectors; ++v) {
            const Vector x = load<float, Bytes>(own + j * stride + v * k_lanes);
            d[v] += in_d * x;
            o[v] += in_o * x;
        }
    }
#pragma GCC unroll 4
    for (std::size_t v = 0; v < Vectors; ++v) {
        store<float, Bytes>(own + sources * stride + v * k_lanes, d[v]);
        write_decoded<Bytes>(task, t, column + v * k_lanes, o[v] + f.in_o[sources] * d[v]);
    }
}

template <int Bytes>
inline void finish_tokens(const DecodeTask& task, const float* sums) {
    using P = DeferredPanel<Bytes>;
    for (std::size_t t = 0; t < task.tokens; ++t) {
        std::size_t column = 0;
        for (; column + 2 * P::k_columns <= task.state_stride; column += 2 * P::k_columns) {
            finish_columns<Bytes, 2 * k_panel_vectors>(task, t, column, sums);
        }
        if (column < task.state_stride) finish_columns<Bytes, k_panel_vectors>(task, t, column, sums);
    }
}

// MostWrites: maximum of pending writes; Most: tokens whose sums fit in registers.
template <int Bytes, std::size_t MostWrites, std::size_t Most>
void decode_deferred(const DecodeTask* tasks, std::size_t count, float* sums) {
    using P = DeferredPanel<Bytes>;
    decode_all(tasks, count, [&](const DecodeTask& task, DecodeAhead&) {
        for (std::size_t column = 0; column < task.state_stride; column += P::k_columns) {
            float* panel = task.write + column * task.dk;
            if (task.writes.folded == MostWrites && task.padded == 1) {
                fold_and_sum<Bytes, MostWrites>(task, column, panel, sums + column);
                continue;
            }
            if (task.writes.folded > 0) {
                fold_panel<Bytes>(task.writes, task.state_stride, column, task.dk, panel);
            }
            switch (task.padded) {
                case 1: panel_sums<Bytes, 1>(task, panel, 0, sums + column); break;
                case 2: panel_sums<Bytes, 2>(task, panel, 0, sums + column); break;
                default:
                    for (std::size_t t = 0; t < task.padded; t += Most) {
                        panel_sums<Bytes, Most>(task, panel, t, sums + column);
                    }
            }
        }
        finish_tokens<Bytes>(task, sums);
    });
}

// By halves, in registers: a vector whose address is taken would be kept in memory where it is summed, too.
template <int Bytes>
__attribute__((always_inline)) inline float sum_of_lanes(typename VectorOf<float, Bytes>::type x) {
#if defined(__AVX512F__)
    if constexpr (Bytes == 64) {
        const __m256 high = _mm512_extractf32x8_ps((__m512)x, 1);
        return sum_of_lanes<32>((typename VectorOf<float, 32>::type)(_mm512_castps512_ps256((__m512)x) + high));
    }
#endif
#if defined(__AVX__)
    if constexpr (Bytes == 32) {
        const __m128 high = _mm256_extractf128_ps((__m256)x, 1);
        return sum_of_lanes<16>((typename VectorOf<float, 16>::type)(_mm256_castps256_ps128((__m256)x) + high));
    }
#endif
    if constexpr (Bytes == 16) return x[0] + x[1] + (x[2] + x[3]);
}

// Rows rows, so that each element of x and y is loaded only once for them.
template <int Bytes, std::size_t Rows>
__attribute__((always_inline)) inline void products_of_rows(const float* from, std::size_t dk, const float* x,
                                                            const float* y, float* with_x, float* with_y) {
    using Vector = typename VectorOf<float, Bytes>::type;
    constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    Vector sum_x[Rows], sum_y[Rows];
#pragma GCC unroll 4
    for (std::size_t r = 0; r < Rows; ++r) sum_x[r] = sum_y[r] = Vector{};
    std::size_t i = 0;
    for (; i + k_lanes <= dk; i += k_lanes) {
        const Vector one_x = load<float, Bytes>(x + i), one_y = load<float, Bytes>(y + i);
#pragma GCC unroll 4
        for (std::size_t r = 0; r < Rows; ++r) {
            const Vector row = load_once<Bytes>(from + r * dk + i);
            sum_x[r] += row * one_x;
            sum_y[r] += row * one_y;
        }
    }
#pragma GCC unroll 4
    for (std::size_t r = 0; r < Rows; ++r) {
        with_x[r] = sum_of_lanes<Bytes>(sum_x[r]);
        with_y[r] = sum_of_lanes<Bytes>(sum_y[r]);
    }
    for (; i < dk; ++i) {
        for (std::size_t r = 0; r < Rows; ++r) {
            with_x[r] += from[r * dk + i] * x[i];
            with_y[r] += from[r * dk + i] * y[i];
        }
    }
}

template <int Bytes>
void row_products(const float* from, std::size_t rows, std::size_t dk, const float* x, const float* y, float* with_x,
                  float* with_y) {
    std::size_t r = 0;
    for (; r + 4 <= rows; r += 4) products_of_rows<Bytes, 4>(from + r * dk, dk, x, y, with_x + r, with_y + r);
    switch (rows - r) {
        case 3: return products_of_rows<Bytes, 3>(from + r * dk, dk, x, y, with_x + r, with_y + r);
        case 2: return products_of_rows<Bytes, 2>(from + r * dk, dk, x, y, with_x + r, with_y + r);
        case 1: return products_of_rows<Bytes, 1>(from + r * dk, dk, x, y, with_x + r, with_y + r);
        default: return;
    }
}

}  // namespace
}  // namespace gdnctl::oracle
