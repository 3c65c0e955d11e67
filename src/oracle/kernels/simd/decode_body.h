// A sweep over some columns of a state, row by row. The sums S^T k and S^T q stay in registers.
#pragma once

#include "oracle/kernels/simd/decode_ahead.h"
#include "oracle/kernels/simd/decode_task.h"
#include "oracle/kernels/simd/stored.h"
#include "oracle/kernels/simd/vector.h"

namespace gdnctl::oracle {
namespace {

// The product as it is rounded. In a * b + c * d either product may be the one that is not: that is for the compiler to
// choose, each time it inlines the sum, and a state would depend on where a thread's share ends.
template <class Vector>
__attribute__((always_inline)) inline Vector product(Vector a, float b) {
    Vector x = a * b;
#if defined(__SSE2__)
    __asm__("" : "+v"(x));
#endif
    return x;
}

// Loads once: left to itself, the compiler makes the load part of each multiply-add that uses it, and the loads a cycle
// are what a state in the second-level cache runs out of.
template <int Bytes>
__attribute__((always_inline)) inline typename VectorOf<float, Bytes>::type load_once(const float* from) {
    typename VectorOf<float, Bytes>::type x = load<float, Bytes>(from);
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

    DecodeSweep(const DecodeTask& task, std::size_t column, bool panels, DecodeAhead& ahead)
        : m_t(task), m_column(column), m_stride(task.state_stride), m_at(column), m_ahead(ahead) {
        if (!panels) return;
        const std::size_t first = column / k_decode_panel * k_decode_panel;
        m_stride = task.state_stride - first < k_decode_panel ? task.state_stride - first : k_decode_panel;
        m_at = first * task.dk + (column - first);
    }

    // The pending writes of the step before go in, the row is stored, and it feeds the sums.
    void deferred() {
        for (std::size_t t = 0; t < Tokens; ++t) {
            for (std::size_t v = 0; v < Vectors; ++v) m_d[t][v] = load<float, Bytes>(d_at(t, v));
        }
        if (m_t.keep == 1) {
            sums<true, false>();
        } else {
            sums<true, true>();
        }
        if constexpr (Tokens == 1) {
            finish_one();
        } else {
            finish();
        }
        for (std::size_t t = 0; t < Tokens; ++t) {
            for (std::size_t v = 0; v < Vectors; ++v) store<float, Bytes>(d_at(t, v), m_d[t][v]);
        }
    }

    // From the last row back to the first: those are still in the cache.
    void two_passes() {
        sums<false, false>();
        finish();
        const float decay = m_t.decay;
        const std::size_t stride = m_stride;
        const float* k = m_t.k;
        const float* from = m_t.read + m_at;
        float* to = m_t.write + m_at;
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
            m_ahead.template fetch<k_row / 2>();
        }
    }

    // Writes `unwritten`, a panel of the same width, in the same sweep; this panel takes its place.
    void piped(DecodePanel& unwritten) {
        static_assert(Tokens == 1 && k_columns <= DecodePanel::k_most);
        if (unwritten.k == nullptr) {
            sums<false, false>();
        } else if (m_ahead.done()) {
            sums_beside<false>(unwritten);
        } else {
            sums_beside<true>(unwritten);
        }
        finish_one();
        unwritten.k = m_t.k;
        unwritten.read = m_t.read + m_at;
        unwritten.write = m_t.write + m_at;
        unwritten.state_stride = m_stride;
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
    float* d_at(std::size_t t, std::size_t v) const { return m_t.d + t * m_t.state_stride + m_column + v * k_lanes; }

    __attribute__((always_inline)) static void write_row(const DecodePanel& p, std::size_t i,
                                                         const Vector (&d)[Vectors]) {
        const std::size_t at = i * p.state_stride;
        const Vector factor = broadcast<Bytes>(p.k + i);
        for (std::size_t v = 0; v < Vectors; ++v) {
            const Vector s = product(load<float, Bytes>(p.read + at + v * k_lanes), p.decay);
            store<float, Bytes>(p.write + at + v * k_lanes, s + factor * d[v]);
        }
    }

    // The rows of `unwritten` from the last to the first, which are still in the cache; those of this panel forwards.
    template <bool Fetch>
    void sums_beside(const DecodePanel& unwritten) {
        const DecodePanel other = unwritten;
        Vector with_k[Vectors], with_q[Vectors], d[Vectors];
        for (std::size_t v = 0; v < Vectors; ++v) {
            with_k[v] = with_q[v] = Vector{};
            d[v] = load<float, Bytes>(other.d + v * k_lanes);
        }
        const float *k = m_t.k, *q = m_t.q;
        const float* from = m_t.read + m_at;
        const std::size_t stride = m_stride;
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

    template <bool Deferred, bool Keep>
    __attribute__((always_inline)) void sums() {
        Vector with_k[Tokens][Vectors], with_q[Tokens][Vectors], d[Tokens][Vectors];
        for (std::size_t t = 0; t < Tokens; ++t) {
            for (std::size_t v = 0; v < Vectors; ++v) {
                with_k[t][v] = with_q[t][v] = Vector{};
                if constexpr (Deferred) d[t][v] = m_d[t][v];
            }
        }
        const std::size_t rows = m_t.dk, stride = m_stride;
        const float keep = m_t.keep;
        const float *k = m_t.k, *q = m_t.q, *before = m_t.pending_k, *from = m_t.read + m_at;
        float* to = m_t.write + m_at;
        DecodeAhead ahead = m_ahead;
        for (std::size_t i = 0; i < rows; ++i, from += stride, to += stride) {
            // Factors are broadcast before anything is stored: the compiler must assume that a store changes them.
            Vector s[Vectors];
            if constexpr (Tokens == 1) {
                const Vector one_k = broadcast<Bytes>(k), one_q = broadcast<Bytes>(q);
                Vector one_before = {};
                if constexpr (Deferred) one_before = broadcast<Bytes>(before);
                for (std::size_t v = 0; v < Vectors; ++v) {
                    s[v] = load_once<Bytes>(from + v * k_lanes);
                    if constexpr (Keep) s[v] *= keep;
                    if constexpr (Deferred) {
                        s[v] += one_before * d[0][v];
                        store<float, Bytes>(to + v * k_lanes, s[v]);
                    }
                    with_k[0][v] += one_k * s[v];
                    with_q[0][v] += one_q * s[v];
                }
            } else {
                for (std::size_t v = 0; v < Vectors; ++v) {
                    s[v] = load_once<Bytes>(from + v * k_lanes);
                    if constexpr (Keep) s[v] *= keep;
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
            ahead.template fetch<(Deferred ? k_row : k_row / 2)>();
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

    // d and out of the tokens, and in m_d what is added to the state.
    void finish() {
        for (std::size_t v = 0; v < Vectors; ++v) {
            Vector d[Tokens];
            for (std::size_t t = 0; t < Tokens; ++t) {
                Vector o = m_t.factors[t].out_state * m_with_q[t][v];
                d[t] = m_t.factors[t].from_state * m_with_k[t][v];
                if (m_t.factors[t].beta != 0) d[t] += m_t.factors[t].beta * value(t, v);
                for (std::size_t j = 0; j < t; ++j) {
                    d[t] += m_t.factors[t].in_d[j] * d[j];
                    o += m_t.factors[t].in_o[j] * d[j];
                }
                o += m_t.factors[t].in_o[t] * d[t];
                write_out(t, v, o);
            }
            for (std::size_t t = 0; t < Tokens; ++t) m_d[t][v] = m_t.factors[t].later * d[t];
        }
    }

    std::size_t columns_from(std::size_t column) const {
        return column >= m_t.columns ? 0 : m_t.columns - column < k_lanes ? m_t.columns - column : k_lanes;
    }

    Vector value(std::size_t t, std::size_t v) const {
        const std::size_t column = m_column + v * k_lanes;
        const std::size_t at = t * m_t.value_stride + column;
        if (columns_from(column) == k_lanes) return load<Bytes>(m_t.v, at);
        float padded[k_lanes] = {};
        for (std::size_t j = 0; j < columns_from(column); ++j) padded[j] = value_at(m_t.v, at + j);
        return load<float, Bytes>(padded);
    }

    // Tokens beyond the step's have nowhere to go.
    void write_out(std::size_t t, std::size_t v, Vector o) const {
        if (t >= m_t.tokens) return;
        const std::size_t column = m_column + v * k_lanes;
        const std::size_t at = t * m_t.value_stride + column;
        if (columns_from(column) == k_lanes) return store<Bytes>(m_t.out, at, o);
        float padded[k_lanes];
        store<float, Bytes>(padded, o);
        for (std::size_t j = 0; j < columns_from(column); ++j) set_value(m_t.out, at + j, padded[j]);
    }

    const DecodeTask& m_t;
    std::size_t m_column;
    std::size_t m_stride, m_at;  // of rows, and where the first one's columns are
    DecodeAhead& m_ahead;
    Vector m_with_k[Tokens][Vectors], m_with_q[Tokens][Vectors], m_d[Tokens][Vectors];
};

// The columns from `column` on, as many vectors at a time as there are registers for.
template <int Bytes, std::size_t Tokens, std::size_t Vectors, bool Deferred>
void decode_columns(const DecodeTask& task, std::size_t column, DecodeAhead& ahead) {
    using Sweep = DecodeSweep<Bytes, Tokens, Vectors>;
    const std::size_t end = Deferred ? task.state_stride : task.columns;
    for (; column + Sweep::k_columns <= end; column += Sweep::k_columns) {
        Sweep sweep(task, column, Deferred, ahead);
        if constexpr (Deferred) {
            sweep.deferred();
        } else {
            sweep.two_passes();
        }
    }
    if constexpr (Vectors > 1) {
        if (column < end) decode_columns<Bytes, Tokens, Vectors / 2, Deferred>(task, column, ahead);
    }
}

// One token: panels of Vectors, each written beside the next. What does not fill a panel is swept twice.
template <int Bytes, std::size_t Vectors>
void decode_piped(const DecodeTask& task, DecodePanel& unwritten, DecodeAhead& ahead) {
    using Sweep = DecodeSweep<Bytes, 1, Vectors>;
    std::size_t column = 0;
    for (; column + Sweep::k_columns <= task.columns; column += Sweep::k_columns) {
        Sweep(task, column, false, ahead).piped(unwritten);
    }
    if (column < task.columns) decode_columns<Bytes, 1, Vectors / 2, false>(task, column, ahead);
}

template <int Bytes, std::size_t Most, bool Deferred>
void decode_several(const DecodeTask& task, DecodeAhead& ahead) {
    switch (task.padded) {
        case 2: return decode_columns<Bytes, 2, (Most > 2 ? Most / 2 : 1), Deferred>(task, 0, ahead);
        case 4: return decode_columns<Bytes, 4, (Most > 4 ? Most / 4 : 1), Deferred>(task, 0, ahead);
        default: return decode_columns<Bytes, 8, 1, Deferred>(task, 0, ahead);
    }
}

// sweep(task, ahead) for all tasks that are one.
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

// Most: vectors of a deferred panel of one token; Piped: of a panel that is written beside the next.
template <int Bytes, std::size_t Most, std::size_t Piped>
DecodeKernel decode_kernel() {
    DecodeKernel kernel;
    kernel.lanes = VectorOf<float, Bytes>::k_lanes;
    kernel.deferred = [](const DecodeTask* tasks, std::size_t count) {
        decode_all(tasks, count, [](const DecodeTask& task, DecodeAhead& ahead) {
            if (task.padded == 1) return decode_columns<Bytes, 1, Most, true>(task, 0, ahead);
            decode_several<Bytes, Most, true>(task, ahead);
        });
    };
    kernel.in_place = [](const DecodeTask* tasks, std::size_t count, DecodePanel& unwritten) {
        decode_all(tasks, count, [&](const DecodeTask& task, DecodeAhead& ahead) {
            if (task.padded == 1) return decode_piped<Bytes, Piped>(task, unwritten, ahead);
            DecodeSweep<Bytes, 1, Piped>::write(unwritten);
            decode_several<Bytes, Most, false>(task, ahead);
        });
    };
    kernel.finish = DecodeSweep<Bytes, 1, Piped>::write;
    return kernel;
}

}  // namespace
}  // namespace gdnctl::oracle
