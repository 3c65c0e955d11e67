// A sweep over some columns of a state, row by row: the pending writes of the step before go in, the row is stored, and
// it feeds S^T k and S^T q. The sums stay in registers.
#pragma once

#include "oracle/kernels/simd/decode_task.h"
#include "oracle/kernels/simd/vector.h"

namespace gdnctl::oracle {
namespace {

template <int Bytes, std::size_t Tokens, std::size_t Vectors>
class DecodeSweep {
    using Vector = typename VectorOf<float, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;

public:
    DecodeSweep(const DecodeTask& task, std::size_t column) : m_t(task), m_column(column) {}

    void deferred() {
        for (std::size_t t = 0; t < Tokens; ++t) {
            for (std::size_t v = 0; v < Vectors; ++v) m_d[t][v] = load<float, Bytes>(d_at(t, v));
        }
        sums<true>();
        finish();
        for (std::size_t t = 0; t < Tokens; ++t) {
            for (std::size_t v = 0; v < Vectors; ++v) store<float, Bytes>(d_at(t, v), m_d[t][v]);
        }
    }

    // From the last row back to the first: those are still in the cache.
    void two_passes() {
        sums<false>();
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
            for (std::size_t v = 0; v < Vectors; ++v) s[v] = load<float, Bytes>(from + at + v * k_lanes) * decay;
            for (std::size_t t = 0; t < Tokens; ++t) {
                const Vector factor = broadcast<Bytes>(k + i * Tokens + t);
                for (std::size_t v = 0; v < Vectors; ++v) s[v] += factor * d[t][v];
            }
            for (std::size_t v = 0; v < Vectors; ++v) store<float, Bytes>(to + at + v * k_lanes, s[v]);
        }
    }

private:
    float* d_at(std::size_t t, std::size_t v) const { return m_t.d + t * m_t.state_stride + m_column + v * k_lanes; }

    template <bool Deferred>
    __attribute__((always_inline)) void sums() {
        Vector with_k[Tokens][Vectors], with_q[Tokens][Vectors], d[Tokens][Vectors];
        for (std::size_t t = 0; t < Tokens; ++t) {
            for (std::size_t v = 0; v < Vectors; ++v) {
                with_k[t][v] = with_q[t][v] = Vector{};
                if constexpr (Deferred) d[t][v] = m_d[t][v];
            }
        }
        const float keep = m_t.keep;
        const float *k = m_t.k, *q = m_t.q, *before = m_t.pending_k;
        const float* from = m_t.read + m_column;
        float* to = m_t.write + m_column;
        const std::size_t stride = m_t.state_stride;
        const std::size_t rows = m_t.dk;
        for (std::size_t i = 0; i < rows; ++i, from += stride, to += stride) {
            // Factors are broadcast before anything is stored: the compiler must assume that a store changes them.
            Vector s[Vectors];
            if constexpr (Tokens == 1) {
                const Vector one_k = broadcast<Bytes>(k), one_q = broadcast<Bytes>(q);
                Vector one_before = {};
                if constexpr (Deferred) one_before = broadcast<Bytes>(before);
                for (std::size_t v = 0; v < Vectors; ++v) {
                    s[v] = load<float, Bytes>(from + v * k_lanes);
                    if constexpr (Deferred) {
                        s[v] = s[v] * keep + one_before * d[0][v];
                        store<float, Bytes>(to + v * k_lanes, s[v]);
                    }
                    with_k[0][v] += one_k * s[v];
                    with_q[0][v] += one_q * s[v];
                }
            } else {
                for (std::size_t v = 0; v < Vectors; ++v) {
                    s[v] = load<float, Bytes>(from + v * k_lanes);
                    if constexpr (Deferred) s[v] *= keep;
                }
                for (std::size_t t = 0; t < Tokens && Deferred; ++t) {
                    const Vector factor = broadcast<Bytes>(before + t);
                    for (std::size_t v = 0; v < Vectors; ++v) s[v] += factor * d[t][v];
                }
                for (std::size_t v = 0; v < Vectors && Deferred; ++v) store<float, Bytes>(to + v * k_lanes, s[v]);
                for (std::size_t t = 0; t < Tokens; ++t) {
                    const Vector factor_k = broadcast<Bytes>(k + t);
                    for (std::size_t v = 0; v < Vectors; ++v) with_k[t][v] += factor_k * s[v];
                    const Vector factor_q = broadcast<Bytes>(q + t);
                    for (std::size_t v = 0; v < Vectors; ++v) with_q[t][v] += factor_q * s[v];
                }
            }
            k += Tokens;
            q += Tokens;
            if constexpr (Deferred) before += Tokens;
        }
        for (std::size_t t = 0; t < Tokens; ++t) {
            for (std::size_t v = 0; v < Vectors; ++v) {
                m_with_k[t][v] = with_k[t][v];
                m_with_q[t][v] = with_q[t][v];
            }
        }
    }

    // d and out of the tokens, and in m_d what the next step adds.
    void finish() {
        for (std::size_t v = 0; v < Vectors; ++v) {
            Vector d[Tokens];
            for (std::size_t t = 0; t < Tokens; ++t) {
                Vector o = m_t.out_state[t] * m_with_q[t][v];
                d[t] = m_t.from_state[t] * m_with_k[t][v];
                if (m_t.beta[t] != 0) d[t] += m_t.beta[t] * value(t, v);
                for (std::size_t j = 0; j < t; ++j) {
                    d[t] += m_t.in_d[t][j] * d[j];
                    o += m_t.in_o[t][j] * d[j];
                }
                o += m_t.in_o[t][t] * d[t];
                write_out(t, v, o);
            }
            for (std::size_t t = 0; t < Tokens; ++t) m_d[t][v] = m_t.later[t] * d[t];
        }
    }

    std::size_t columns_from(std::size_t column) const {
        return column >= m_t.columns ? 0 : m_t.columns - column < k_lanes ? m_t.columns - column : k_lanes;
    }

    Vector value(std::size_t t, std::size_t v) const {
        const std::size_t column = m_column + v * k_lanes;
        const float* from = m_t.v + t * m_t.value_stride + column;
        if (columns_from(column) == k_lanes) return load<float, Bytes>(from);
        float padded[k_lanes] = {};
        for (std::size_t j = 0; j < columns_from(column); ++j) padded[j] = from[j];
        return load<float, Bytes>(padded);
    }

    // Tokens beyond the step's have nowhere to go.
    void write_out(std::size_t t, std::size_t v, Vector o) const {
        if (t >= m_t.tokens) return;
        const std::size_t column = m_column + v * k_lanes;
        float* to = m_t.out + t * m_t.value_stride + column;
        if (columns_from(column) == k_lanes) return store<float, Bytes>(to, o);
        float padded[k_lanes];
        store<float, Bytes>(padded, o);
        for (std::size_t j = 0; j < columns_from(column); ++j) to[j] = padded[j];
    }

    const DecodeTask& m_t;
    std::size_t m_column;
    Vector m_with_k[Tokens][Vectors], m_with_q[Tokens][Vectors], m_d[Tokens][Vectors];
};

// All columns, as many vectors at a time as there are registers for.
template <int Bytes, std::size_t Tokens, std::size_t Vectors>
void decode_columns(const DecodeTask& task, bool deferred, std::size_t column) {
    constexpr std::size_t k_width = Vectors * VectorOf<float, Bytes>::k_lanes;
    const std::size_t end = deferred ? task.state_stride : task.columns;
    for (; column + k_width <= end; column += k_width) {
        DecodeSweep<Bytes, Tokens, Vectors> sweep(task, column);
        deferred ? sweep.deferred() : sweep.two_passes();
    }
    if constexpr (Vectors > 1) {
        if (column < end) decode_columns<Bytes, Tokens, Vectors / 2>(task, deferred, column);
    }
}

template <int Bytes, std::size_t Most>
void decode(const DecodeTask& task, std::size_t tokens, bool deferred) {
    switch (tokens) {
        case 1: return decode_columns<Bytes, 1, Most>(task, deferred, 0);
        case 2: return decode_columns<Bytes, 2, (Most > 2 ? Most / 2 : 1)>(task, deferred, 0);
        case 4: return decode_columns<Bytes, 4, (Most > 4 ? Most / 4 : 1)>(task, deferred, 0);
        default: return decode_columns<Bytes, 8, 1>(task, deferred, 0);
    }
}

}  // namespace
}  // namespace gdnctl::oracle
