// In place: a sweep over some columns of the caller's state, row by row. The sums S^T k and S^T q stay in registers.
#pragma once

#include "oracle/gdn/kernels/simd/decode_ahead.h"
#include "oracle/gdn/kernels/simd/decode_values.h"

namespace gdnctl::oracle {
namespace {

// Rounds the product separately. In a * b + c * d, the compiler may fuse either product, and may choose differently
// each time it inlines the sum. The state would then depend on where a thread's share ends.
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
        const std::size_t stride = m_t.state_stride;
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
        finish_one();
        unwritten.k = m_t.k;
        unwritten.read = m_t.read + m_column;
        unwritten.write = m_t.write + m_column;
        unwritten.state_stride = m_t.state_stride;
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
        const std::size_t at = i * p.state_stride;
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
        const std::size_t stride = m_t.state_stride;
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
        const std::size_t rows = m_t.dk, stride = m_t.state_stride;
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

    // One token, full columns.
    void finish_one() {
        if (m_column + k_columns > m_t.columns) return finish();
        const float beta = m_t.factors[0].beta, in_o = m_t.factors[0].in_o[0], later = m_t.factors[0].later;
        const float from_state = m_t.factors[0].from_state, out_state = m_t.factors[0].out_state;
#pragma GCC unroll 8
        for (std::size_t v = 0; v < Vectors; ++v) {
            Vector d = from_state * m_with_k[0][v];
            if (beta != 0) d += beta * load<Bytes>(m_t.v, m_column + v * k_lanes);
            store<Bytes>(m_t.out, m_column + v * k_lanes, out_state * m_with_q[0][v] + in_o * d);
            m_d[0][v] = later * d;
        }
    }

    // Computes d and out of the tokens, and stores in m_d what is added to the state.
    void finish() {
        for (std::size_t v = 0; v < Vectors; ++v) {
            Vector d[Tokens];
            for (std::size_t t = 0; t < Tokens; ++t) {
                Vector o = m_t.factors[t].out_state * m_with_q[t][v];
                d[t] = m_t.factors[t].from_state * m_with_k[t][v];
                const std::size_t column = m_column + v * k_lanes;
                if (m_t.factors[t].beta != 0) d[t] += m_t.factors[t].beta * decode_value<Bytes>(m_t, t, column);
                for (std::size_t j = 0; j < t; ++j) {
                    d[t] += m_t.factors[t].in_d[j] * d[j];
                    o += m_t.factors[t].in_o[j] * d[j];
                }
                o += m_t.factors[t].in_o[t] * d[t];
                write_decoded<Bytes>(m_t, t, column, o);
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

}  // namespace
}  // namespace gdnctl::oracle
