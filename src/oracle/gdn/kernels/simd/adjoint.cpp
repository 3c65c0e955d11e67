// Runs backwards with G = dL/dS_t, starting from G = dS_T, where Sb = alpha S_{t-1}, r = v - Sb^T k, d = beta r:
//   G += s q do^T;  dq = s S_t do;  dd = G^T k;  dbeta = dd.r;  dv = dr = beta dd;  dk = G d - Sb dr
//   G -= k dr^T;  dg = <G, Sb>;  G = alpha G;  at the end dS0 = G
// S is recomputed from a checkpoint at the start of each segment; nothing is divided by alpha.
#include "oracle/gdn/kernels/simd/adjoint_panel.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle {
namespace {

template <int Bytes>
class AdjointSweep {
    using Vector = typename VectorOf<double, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<double, Bytes>::k_lanes;
    static constexpr std::size_t k_columns = k_adjoint_columns;
    static constexpr std::size_t k_vectors = k_columns / k_lanes;
    static constexpr std::size_t k_ahead = 2;  // tokens
    struct Row {
        Vector x[k_vectors];
    };

public:
    explicit AdjointSweep(const AdjointPanel& panel) : m_p(panel), m_size(panel.dk * k_columns) {
        const std::size_t segments = (panel.tokens + panel.segment - 1) / panel.segment;
        double* next = panel.scratch;
        m_checkpoints = next;
        next += segments * m_size;
        m_decayed = next;
        next += panel.segment * m_size;
        m_gradient = next;
        next += m_size;
        m_r = next;
        next += panel.segment * k_columns;
        m_d = next;
    }

    void run() {
        copy_in(m_p.state, m_checkpoints);
        copy_in(m_p.d_state, m_gradient);
        const std::size_t segments = (m_p.tokens + m_p.segment - 1) / m_p.segment;
        for (std::size_t s = 0; s + 1 < segments; ++s) {
            const std::size_t begin = s * m_p.segment;
            const std::size_t last = begin + m_p.segment - 1;
            forward<false>(begin, m_checkpoints + s * m_size, nullptr, m_decayed, m_r, m_d);
            for (std::size_t t = begin + 1; t <= last; ++t) forward<true>(t, m_decayed, m_d, m_decayed, m_r, m_d);
            write_state(last, m_decayed, m_d, m_checkpoints + (s + 1) * m_size);
        }
        for (std::size_t s = segments; s-- > 0;) {
            const std::size_t begin = s * m_p.segment;
            const std::size_t count = begin + m_p.segment < m_p.tokens ? m_p.segment : m_p.tokens - begin;
            forward<false>(begin, m_checkpoints + s * m_size, nullptr, m_decayed, m_r, m_d);
            for (std::size_t at = 1; at < count; ++at) {
                const double* before = m_decayed + (at - 1) * m_size;
                const double* d_before = m_d + (at - 1) * k_columns;
                forward<true>(begin + at, before, d_before, m_decayed + at * m_size, m_r + at * k_columns,
                              m_d + at * k_columns);
            }
            backward(begin, count);
        }
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            for (std::size_t j = 0; j < m_p.columns; ++j) {
                m_p.d_state[i * m_p.state_stride + j] = m_gradient[i * k_columns + j];
            }
        }
    }

private:
    static Row read(const double* from) {
        Row row;
#pragma GCC unroll 8
        for (std::size_t v = 0; v < k_vectors; ++v) row.x[v] = load<double, Bytes>(from + v * k_lanes);
        return row;
    }

    static void write(double* to, const Row& row) {
#pragma GCC unroll 8
        for (std::size_t v = 0; v < k_vectors; ++v) store<double, Bytes>(to + v * k_lanes, row.x[v]);
    }

    // The columns of a token's row; 0 beyond the panel's last column.
    Row read_token(const double* from) const {
        if (m_p.columns == k_columns) return read(from);
        double padded[k_columns] = {};
        for (std::size_t j = 0; j < m_p.columns; ++j) padded[j] = from[j];
        return read(padded);
    }

    // Adds halves to halves, down to one vector. sums() and sum() continue down to one value, so the order does not
    // depend on the number of lanes.
    static Vector folded(Row row) {
        for (std::size_t n = k_vectors / 2; n >= 1; n /= 2) {
            for (std::size_t v = 0; v < n; ++v) row.x[v] += row.x[v + n];
        }
        return row.x[0];
    }

    static double sum_of(Vector x) {
        double lanes[k_lanes];
        store<double, Bytes>(lanes, x);
        for (std::size_t n = k_lanes / 2; n >= 1; n /= 2) {
            for (std::size_t j = 0; j < n; ++j) lanes[j] += lanes[j + n];
        }
        return lanes[0];
    }

    static double sum(const Row& row) { return sum_of(folded(row)); }

    static void add(double* to, Vector x) { store<double, Bytes>(to, load<double, Bytes>(to) + x); }

    // The sums of k_lanes rows in one vector; each addition serves two rows.
    static Vector sums(const Vector (&row)[k_lanes]) {
        if constexpr (k_lanes == 8) {
            Vector half[4];
            for (std::size_t i = 0; i < 4; ++i) {
                const Vector a = row[2 * i], b = row[2 * i + 1];
                half[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
                          __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
            }
            Vector quarter[2];
            for (std::size_t i = 0; i < 2; ++i) {
                const Vector a = half[2 * i], b = half[2 * i + 1];
                quarter[i] = __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13) +
                             __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
            }
            return __builtin_shufflevector(quarter[0], quarter[1], 0, 2, 4, 6, 8, 10, 12, 14) +
                   __builtin_shufflevector(quarter[0], quarter[1], 1, 3, 5, 7, 9, 11, 13, 15);
        } else if constexpr (k_lanes == 4) {
            Vector half[2];
            for (std::size_t i = 0; i < 2; ++i) {
                const Vector a = row[2 * i], b = row[2 * i + 1];
                half[i] = __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
            }
            return __builtin_shufflevector(half[0], half[1], 0, 2, 4, 6) +
                   __builtin_shufflevector(half[0], half[1], 1, 3, 5, 7);
        } else {
            static_assert(k_lanes == 2);
            return __builtin_shufflevector(row[0], row[1], 0, 2) + __builtin_shufflevector(row[0], row[1], 1, 3);
        }
    }

    void copy_in(const double* from, double* to) const {
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            for (std::size_t j = 0; j < k_columns; ++j) {
                to[i * k_columns + j] = j < m_p.columns ? from[i * m_p.state_stride + j] : 0;
            }
        }
    }

    // Rows of tokens are several KB apart, so no processor prefetches the next one.
    static void prefetch(const double* row, std::size_t count) {
        constexpr std::size_t k_line = 8;
        for (std::size_t i = 0; i < count; i += k_line) __builtin_prefetch(row + i);
    }

    // One token, in one pass over the state. Leaves alpha S in `decayed`, and sets r and d. `from` is S before the
    // token or (Follows) the previous token's `decayed`, with its d: then S is from + k d. It may be `decayed` itself.
    template <bool Follows>
    void forward(std::size_t t, const double* from, const double* d_before, double* decayed, double* r_out,
                 double* d_out) const {
        const double* k = m_p.k + t * m_p.key_stride;
        const double* k_before = Follows ? k - m_p.key_stride : k;
        const double alpha = m_p.alpha[t * m_p.gate_stride];
        const double beta = m_p.beta[t * m_p.gate_stride];
        Row d = {};
        if constexpr (Follows) d = read(d_before);
        if (t + k_ahead < m_p.tokens) {
            prefetch(k + k_ahead * m_p.key_stride, m_p.dk);
            prefetch(m_p.v + (t + k_ahead) * m_p.value_stride, k_columns);
        }
        Row r = read_token(m_p.v + t * m_p.value_stride);
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            Row s = read(from + i * k_columns);
#pragma GCC unroll 8
            for (std::size_t v = 0; v < k_vectors; ++v) {
                if constexpr (Follows) s.x[v] += k_before[i] * d.x[v];
                s.x[v] *= alpha;
                r.x[v] -= k[i] * s.x[v];
            }
            write(decayed + i * k_columns, s);
        }
        write(r_out, r);
#pragma GCC unroll 8
        for (std::size_t v = 0; v < k_vectors; ++v) r.x[v] *= beta;
        write(d_out, r);
    }

    // The state after token t, from the `decayed` and d that it left.
    void write_state(std::size_t t, const double* decayed, const double* d_in, double* to) const {
        const double* k = m_p.k + t * m_p.key_stride;
        const Row d = read(d_in);
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            Row s = read(decayed + i * k_columns);
#pragma GCC unroll 8
            for (std::size_t v = 0; v < k_vectors; ++v) s.x[v] += k[i] * d.x[v];
            write(to + i * k_columns, s);
        }
    }

    // The backward pass's values for a token.
    struct Token {
        const double *q, *k, *decayed;
        double *dq, *dk, *dg;
        double alpha;
        Row d_out, d;
        Row dr = {};  // set once it is opened
    };

    // All tokens of a segment, last first: `count` of them starting at `begin`.
    void backward(std::size_t begin, std::size_t count) {
        Token token = token_of(begin, count - 1);
        Row dd = pass<false, true>(token, token);
        for (std::size_t at = count - 1;; --at) {
            finish_values(begin, at, dd, token);
            if (at == 0) break;
            Token before = token_of(begin, at - 1);
            dd = pass<true, true>(token, before);
            token = before;
        }
        pass<true, false>(token, token);
    }

    Token token_of(std::size_t begin, std::size_t at) const {
        const std::size_t t = begin + at;
        if (t >= k_ahead) {
            const std::size_t next = t - k_ahead;
            prefetch(m_p.q + next * m_p.key_stride, m_p.dk);
            prefetch(m_p.k + next * m_p.key_stride, m_p.dk);
            prefetch(m_p.dq + next * m_p.gradient_stride, m_p.dk);
            prefetch(m_p.dk_out + next * m_p.gradient_stride, m_p.dk);
            prefetch(m_p.d_out + next * m_p.value_stride, k_columns);
        }
        return {m_p.q + t * m_p.key_stride,
                m_p.k + t * m_p.key_stride,
                m_decayed + at * m_size,
                m_p.dq + t * m_p.gradient_stride,
                m_p.dk_out + t * m_p.gradient_stride,
                m_p.dg + t * m_p.gate_stride,
                m_p.alpha[t * m_p.gate_stride],
                read_token(m_p.d_out + t * m_p.value_stride),
                read(m_d + at * k_columns)};
    }

    // dbeta and dv of a token with known dd, and its dr.
    void finish_values(std::size_t begin, std::size_t at, const Row& dd, Token& token) const {
        const std::size_t t = begin + at;
        const double beta = m_p.beta[t * m_p.gate_stride];
        const Row r = read(m_r + at * k_columns);
        Row product;
#pragma GCC unroll 8
        for (std::size_t v = 0; v < k_vectors; ++v) {
            product.x[v] = dd.x[v] * r.x[v];
            token.dr.x[v] = beta * dd.x[v];
        }
        m_p.dbeta[t * m_p.gate_stride] += sum(product);
        double values[k_columns];
        write(values, token.dr);
        for (std::size_t j = 0; j < m_p.columns; ++j) m_p.dv[t * m_p.value_stride + j] = values[j];
    }

    // One pass over G: closes a token (dk, dg, G = alpha (G - k dr)) and opens the previous one (G += s q do^T, dq, and
    // dd, which is returned).
    template <bool Closes, bool Opens>
    Row pass(const Token& closing, const Token& opening) {
        Row dd = {};
        Row dg = {};
        // One row of the state, with its folded contributions to dk and dq.
        const auto row = [&](std::size_t i, Vector& of_k, Vector& of_q) __attribute__((always_inline)) {
            Row G = read(m_gradient + i * k_columns);
            if constexpr (Closes) {
                const Row Sb = read(closing.decayed + i * k_columns);
                Row terms;
#pragma GCC unroll 8
                for (std::size_t v = 0; v < k_vectors; ++v) {
                    terms.x[v] = G.x[v] * closing.d.x[v] - Sb.x[v] * closing.dr.x[v];
                    G.x[v] -= closing.k[i] * closing.dr.x[v];
                    dg.x[v] += G.x[v] * Sb.x[v];
                    G.x[v] *= closing.alpha;
                }
                of_k = folded(terms);
            }
            if constexpr (Opens) {
                const Row Sb = read(opening.decayed + i * k_columns);
                Row terms;
#pragma GCC unroll 8
                for (std::size_t v = 0; v < k_vectors; ++v) {
                    G.x[v] += m_p.scale * opening.q[i] * opening.d_out.x[v];
                    dd.x[v] += opening.k[i] * G.x[v];
                    terms.x[v] = (Sb.x[v] + opening.k[i] * opening.d.x[v]) * opening.d_out.x[v];
                }
                of_q = folded(terms);
            }
            write(m_gradient + i * k_columns, G);
        };
        std::size_t i = 0;
        for (; i + k_lanes <= m_p.dk; i += k_lanes) {
            Vector of_k[k_lanes], of_q[k_lanes];
#pragma GCC unroll 8
            for (std::size_t n = 0; n < k_lanes; ++n) row(i + n, of_k[n], of_q[n]);
            if constexpr (Closes) add(closing.dk + i, sums(of_k));
            if constexpr (Opens) add(opening.dq + i, m_p.scale * sums(of_q));
        }
        for (; i < m_p.dk; ++i) {
            Vector of_k, of_q;
            row(i, of_k, of_q);
            if constexpr (Closes) closing.dk[i] += sum_of(of_k);
            if constexpr (Opens) opening.dq[i] += m_p.scale * sum_of(of_q);
        }
        if constexpr (Closes) *closing.dg += sum(dg);
        return dd;
    }

    const AdjointPanel& m_p;
    std::size_t m_size;  // elements of a panel
    double *m_checkpoints, *m_decayed, *m_gradient, *m_r, *m_d;
};

}  // namespace

void GDNCTL_KERNEL(adjoint64)(const AdjointPanel& panel) { AdjointSweep<GDNCTL_BYTES>(panel).run(); }

}  // namespace gdnctl::oracle
