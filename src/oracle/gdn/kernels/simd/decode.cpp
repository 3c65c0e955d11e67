// One decode step of some heads: a sweep over some columns of a state at a time, row by row. The sums S^T k and S^T q
// stay in registers.
#include "oracle/gdn/kernels/simd/decode_task.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle {

namespace {

// Loads only once. Otherwise the compiler makes the load part of each multiply-add that uses it, and loads per cycle
// are the limit for a state in the second-level cache.
template <int Bytes>
__attribute__((always_inline)) inline typename VectorOf<float, Bytes>::type load_once(const float* from) {
    typename VectorOf<float, Bytes>::type x = load<float, Bytes>(from);
#if defined(__SSE2__)
    __asm__("" : "+v"(x));
#endif
    return x;
}

// Prefetches the next task's state to the second-level cache, as many lines at a time as a row of the current one has.
// The processor's own prefetching ends at each page.
class DecodeAhead {
public:
    // Does nothing.
    DecodeAhead() = default;
    explicit DecodeAhead(const DecodeTask& task)
        : m_at(reinterpret_cast<const char*>(task.next)),
          m_end(task.next == nullptr ? m_at : m_at + task.dk * task.columns * sizeof(float)) {}

    bool done() const { return m_at == m_end; }

    template <std::size_t Size>
    __attribute__((always_inline)) void fetch() {
        if (m_at == m_end) return;
        constexpr std::size_t k_line = 64;
        for (std::size_t i = 0; i < Size; i += k_line) __builtin_prefetch(m_at + i, 0, 2);
        m_at += Size > k_line ? Size : k_line;
        if (m_at > m_end) m_at = m_end;
    }

private:
    const char* m_at = nullptr;
    const char* m_end = nullptr;
};

inline void decode_fetch(const char* from, std::size_t bytes) {
    constexpr std::size_t k_line = 64;
    for (std::size_t i = 0; i < bytes; i += k_line) __builtin_prefetch(from + i, 0, 2);
}

// Rows of tokens come from main memory: v and out of the next task, and what this task lists for prefetching.
inline void decode_fetch_tokens(const DecodeTask& task, const DecodeTask* next) {
    if (next != nullptr && next->padded > 0) {
        decode_fetch(address_of(next->v, 0), next->columns * element_size(next->v.storage));
        decode_fetch(static_cast<const char*>(next->out.data), next->columns * element_size(next->out.storage));
    }
    for (std::size_t i = 0; i < 2; ++i) decode_fetch(static_cast<const char*>(task.soon[i]), task.soon_bytes[i]);
}

// Calls sweep(task, ahead) for all tasks that are not empty.
template <class Sweep>
__attribute__((always_inline)) inline void decode_all(const DecodeTask* tasks, std::size_t count, const Sweep& sweep) {
    for (std::size_t i = 0; i < count; ++i) {
        const DecodeTask& task = tasks[i];
        if (task.padded == 0) continue;
        DecodeAhead ahead(task);
        decode_fetch_tokens(task, i + 1 < count ? &tasks[i + 1] : nullptr);
        sweep(task, ahead);
    }
}

// Rounds the product separately. In a * b + c * d, the compiler may fuse either product, and may choose differently
// each time it inlines the sum. Results would then depend on where a thread's share ends.
template <class Vector>
__attribute__((always_inline)) inline Vector product(Vector a, float b) {
    Vector x = a * b;
#if defined(__SSE2__)
    __asm__("" : "+v"(x));
#endif
    return x;
}

template <int Bytes, std::size_t Tokens, std::size_t Vectors>
class DecodeSweep {
    using Vector = typename VectorOf<float, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    static constexpr std::size_t k_row = Vectors * Bytes;

public:
    static constexpr std::size_t k_columns = Vectors * k_lanes;

    DecodeSweep(const DecodeTask& task, std::size_t column, DecodeAhead& ahead)
        : m_t(task), m_column(column), m_ahead(ahead) {}

    // From the last row back to the first, since the last rows are still in the cache.
    void two_passes() {
        sums();
        finish();
        const float decay = m_t.decay;
        const std::size_t stride = m_t.columns;
        const float* k = m_t.k;
        const float* from = m_t.read + m_column;
        float* to = m_t.write + m_column;
        Vector d[Tokens][Vectors];
        for (std::size_t t = 0; t < Tokens; ++t) {
            for (std::size_t v = 0; v < Vectors; ++v) d[t][v] = m_d[t][v];
        }
        for (std::size_t i = m_t.dk; i-- > 0;) {
            const std::size_t at = i * stride;
            Vector s[Vectors];
            for (std::size_t v = 0; v < Vectors; ++v) {
                s[v] = product(load<float, Bytes>(from + at + v * k_lanes), decay);
            }
            for (std::size_t t = 0; t < Tokens; ++t) {
                const Vector factor = broadcast<Bytes>(k + i * Tokens + t);
                for (std::size_t v = 0; v < Vectors; ++v) s[v] += factor * d[t][v];
            }
            for (std::size_t v = 0; v < Vectors; ++v) store<float, Bytes>(to + at + v * k_lanes, s[v]);
            m_ahead.template fetch<k_row / 2>();
        }
    }

    // Writes `unwritten`, a panel of the same width, in the same sweep; this panel takes its place.
    void piped(DecodePanel& unwritten) {
        static_assert(Tokens == 1 && k_columns <= DecodePanel::k_most);
        if (unwritten.k == nullptr) {
            sums();
        } else if (m_ahead.done()) {
            sums_beside<false>(unwritten);
        } else {
            sums_beside<true>(unwritten);
        }
        finish();
        unwritten.k = m_t.k;
        unwritten.read = m_t.read + m_column;
        unwritten.write = m_t.write + m_column;
        unwritten.columns = m_t.columns;
        unwritten.dk = m_t.dk;
        unwritten.decay = m_t.decay;
        for (std::size_t v = 0; v < Vectors; ++v) store<float, Bytes>(unwritten.d + v * k_lanes, m_d[0][v]);
    }

    static void write(DecodePanel& unwritten) {
        if (unwritten.k == nullptr) return;
        Vector d[Vectors];
        for (std::size_t v = 0; v < Vectors; ++v) d[v] = load<float, Bytes>(unwritten.d + v * k_lanes);
        for (std::size_t i = unwritten.dk; i-- > 0;) write_row(unwritten, i, d);
        unwritten.k = nullptr;
    }

private:
    __attribute__((always_inline)) static void write_row(const DecodePanel& p, std::size_t i,
                                                         const Vector (&d)[Vectors]) {
        const std::size_t at = i * p.columns;
        const Vector factor = broadcast<Bytes>(p.k + i);
        for (std::size_t v = 0; v < Vectors; ++v) {
            const Vector s = product(load<float, Bytes>(p.read + at + v * k_lanes), p.decay);
            store<float, Bytes>(p.write + at + v * k_lanes, s + factor * d[v]);
        }
    }

    // The rows of `unwritten` from last to first, which are still in the cache; those of this panel forwards.
    template <bool Fetch>
    void sums_beside(const DecodePanel& unwritten) {
        const DecodePanel other = unwritten;
        Vector with_k[Vectors], with_q[Vectors], d[Vectors];
        for (std::size_t v = 0; v < Vectors; ++v) {
            with_k[v] = with_q[v] = Vector{};
            d[v] = load<float, Bytes>(other.d + v * k_lanes);
        }
        const float *k = m_t.k, *q = m_t.q;
        const float* from = m_t.read + m_column;
        const std::size_t stride = m_t.columns;
        const std::size_t rows = m_t.dk;
        DecodeAhead ahead = m_ahead;
        const auto read_row = [&](std::size_t i) __attribute__((always_inline)) {
            const Vector one_k = broadcast<Bytes>(k + i), one_q = broadcast<Bytes>(q + i);
            for (std::size_t v = 0; v < Vectors; ++v) {
                const Vector s = load_once<Bytes>(from + v * k_lanes);
                with_k[v] += one_k * s;
                with_q[v] += one_q * s;
            }
            from += stride;
        };
        // With one row at a time, or four, it takes 6 % longer.
        constexpr std::size_t k_rows = 2;
        std::size_t i = 0;
        for (; i + k_rows <= rows; i += k_rows) {
            for (std::size_t j = 0; j < k_rows; ++j) {
                read_row(i + j);
                write_row(other, rows - 1 - i - j, d);
                if constexpr (Fetch) ahead.template fetch<k_row>();
            }
        }
        for (; i < rows; ++i) {
            read_row(i);
            write_row(other, rows - 1 - i, d);
            if constexpr (Fetch) ahead.template fetch<k_row>();
        }
        m_ahead = ahead;
        for (std::size_t v = 0; v < Vectors; ++v) {
            m_with_k[0][v] = with_k[v];
            m_with_q[0][v] = with_q[v];
        }
    }

    __attribute__((always_inline)) void sums() {
        Vector with_k[Tokens][Vectors], with_q[Tokens][Vectors];
        for (std::size_t t = 0; t < Tokens; ++t) {
            for (std::size_t v = 0; v < Vectors; ++v) with_k[t][v] = with_q[t][v] = Vector{};
        }
        const std::size_t rows = m_t.dk, stride = m_t.columns;
        const float *k = m_t.k, *q = m_t.q, *from = m_t.read + m_column;
        DecodeAhead ahead = m_ahead;
        for (std::size_t i = 0; i < rows; ++i, from += stride) {
            Vector s[Vectors];
            for (std::size_t v = 0; v < Vectors; ++v) s[v] = load_once<Bytes>(from + v * k_lanes);
            for (std::size_t t = 0; t < Tokens; ++t) {
                const Vector factor_k = broadcast<Bytes>(k + t);
                for (std::size_t v = 0; v < Vectors; ++v) with_k[t][v] += factor_k * s[v];
                const Vector factor_q = broadcast<Bytes>(q + t);
                for (std::size_t v = 0; v < Vectors; ++v) with_q[t][v] += factor_q * s[v];
            }
            k += Tokens;
            q += Tokens;
            ahead.template fetch<k_row / 2>();
        }
        m_ahead = ahead;
        for (std::size_t t = 0; t < Tokens; ++t) {
            for (std::size_t v = 0; v < Vectors; ++v) {
                m_with_k[t][v] = with_k[t][v];
                m_with_q[t][v] = with_q[t][v];
            }
        }
    }

    // Computes d and out of the tokens, and stores in m_d what is added to the state.
    void finish() {
        for (std::size_t v = 0; v < Vectors; ++v) {
            Vector d[Tokens];
            for (std::size_t t = 0; t < Tokens; ++t) {
                Vector o = product(m_with_q[t][v], m_t.factors[t].out_state);
                d[t] = product(m_with_k[t][v], m_t.factors[t].from_state);
                const std::size_t at = t * m_t.value_stride + m_column + v * k_lanes;
                if (m_t.factors[t].beta != 0) d[t] += m_t.factors[t].beta * load<Bytes>(m_t.v, at);
                for (std::size_t j = 0; j < t; ++j) {
                    d[t] += m_t.factors[t].in_d[j] * d[j];
                    o += m_t.factors[t].in_o[j] * d[j];
                }
                o += m_t.factors[t].in_o[t] * d[t];
                if (t < m_t.tokens) store<Bytes>(m_t.out, at, o);
            }
            for (std::size_t t = 0; t < Tokens; ++t) m_d[t][v] = m_t.factors[t].later * d[t];
        }
    }

    const DecodeTask& m_t;
    std::size_t m_column;
    DecodeAhead& m_ahead;
    Vector m_with_k[Tokens][Vectors], m_with_q[Tokens][Vectors], m_d[Tokens][Vectors];
};

// The columns from `column` on, as many vectors at a time as registers allow.
template <int Bytes, std::size_t Tokens, std::size_t Vectors>
void decode_columns(const DecodeTask& task, std::size_t column, DecodeAhead& ahead) {
    using Sweep = DecodeSweep<Bytes, Tokens, Vectors>;
    for (; column + Sweep::k_columns <= task.columns; column += Sweep::k_columns) {
        Sweep(task, column, ahead).two_passes();
    }
    if constexpr (Vectors > 1) {
        if (column < task.columns) decode_columns<Bytes, Tokens, Vectors / 2>(task, column, ahead);
    }
}

// One token: panels of Vectors, each written during the next. Columns that do not fill a panel are swept twice.
template <int Bytes, std::size_t Vectors>
void decode_piped(const DecodeTask& task, DecodePanel& unwritten, DecodeAhead& ahead) {
    using Sweep = DecodeSweep<Bytes, 1, Vectors>;
    std::size_t column = 0;
    for (; column + Sweep::k_columns <= task.columns; column += Sweep::k_columns) {
        Sweep(task, column, ahead).piped(unwritten);
    }
    if (column < task.columns) decode_columns<Bytes, 1, Vectors / 2>(task, column, ahead);
}

// Vectors: of a panel that is written during the next. If the registers hold the sums of 128 columns, states in main
// memory are read in order, which suits the processor's own prefetching, and swept twice.
template <int Bytes, std::size_t Vectors>
void decode_in_place(const DecodeTask* tasks, std::size_t count, DecodePanel& unwritten) {
    decode_all(tasks, count, [&](const DecodeTask& task, DecodeAhead& ahead) {
        const bool in_order = Bytes == 64 && task.far;
        if (task.padded == 1 && !in_order) return decode_piped<Bytes, Vectors>(task, unwritten, ahead);
        DecodeSweep<Bytes, 1, Vectors>::write(unwritten);
        if constexpr (Bytes == 64) {
            DecodeAhead nothing;
            if (task.padded == 1) return decode_columns<Bytes, 1, 8>(task, 0, nothing);
        }
        switch (task.padded) {
            case 2: return decode_columns<Bytes, 2, 2>(task, 0, ahead);
            case 4: return decode_columns<Bytes, 4, 1>(task, 0, ahead);
            default: return decode_columns<Bytes, 8, 1>(task, 0, ahead);
        }
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

DecodeKernel GDNCTL_KERNEL(decode)() {
    constexpr std::size_t k_piped = GDNCTL_BYTES == 16 ? 2 : 4;  // vectors of a panel that is written during the next
    return {VectorOf<float, GDNCTL_BYTES>::k_lanes, decode_in_place<GDNCTL_BYTES, k_piped>,
            DecodeSweep<GDNCTL_BYTES, 1, k_piped>::write, row_products<GDNCTL_BYTES>};
}

}  // namespace gdnctl::oracle
