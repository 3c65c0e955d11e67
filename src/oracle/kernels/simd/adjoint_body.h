// Running backwards with G = dL/dS_t, start G = dS_T, where Sb = alpha S_{t-1}, r = v - Sb^T k, d = beta r:
//   G += s q do^T;  dq = s S_t do;  dd = G^T k;  dbeta = dd.r;  dv = dr = beta dd;  dk = G d - Sb dr
//   G -= k dr^T;  dg = <G, Sb>;  G = alpha G;  at the end dS0 = G
// S is recomputed from a checkpoint at the start of each segment; nothing is divided by alpha.
#pragma once

#include "oracle/kernels/simd/adjoint_panel.h"
#include "oracle/kernels/simd/vector.h"

namespace gdnctl::oracle {
namespace {

template <int Bytes>
class AdjointSweep {
    using Vector = typename VectorOf<double, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<double, Bytes>::k_lanes;
    static constexpr std::size_t k_columns = k_adjoint_columns;
    static constexpr std::size_t k_vectors = k_columns / k_lanes;
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
        m_state = next;
        next += m_size;
        m_gradient = next;
        next += m_size;
        m_r = next;
        next += panel.segment * k_columns;
        m_d = next;
    }

    void run() {
        const std::size_t tokens = m_p.tokens;
        copy_in(m_p.state, m_state);
        copy_in(m_p.d_state, m_gradient);
        for (std::size_t t = 0; t < tokens; ++t) {
            if (t % m_p.segment == 0) copy(m_state, m_checkpoints + t / m_p.segment * m_size);
            forward(t, m_decayed, m_r, m_d);
        }
        for (std::size_t end = tokens; end > 0;) {
            const std::size_t begin = (end - 1) / m_p.segment * m_p.segment;
            copy(m_checkpoints + begin / m_p.segment * m_size, m_state);
            for (std::size_t t = begin; t < end; ++t) {
                const std::size_t at = t - begin;
                forward(t, m_decayed + at * m_size, m_r + at * k_columns, m_d + at * k_columns);
            }
            for (std::size_t t = end; t-- > begin;) {
                const std::size_t at = t - begin;
                backward(t, m_decayed + at * m_size, m_r + at * k_columns, m_d + at * k_columns);
            }
            end = begin;
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
        for (std::size_t v = 0; v < k_vectors; ++v) row.x[v] = load<double, Bytes>(from + v * k_lanes);
        return row;
    }

    static void write(double* to, const Row& row) {
        for (std::size_t v = 0; v < k_vectors; ++v) store<double, Bytes>(to + v * k_lanes, row.x[v]);
    }

    // The columns of a token's row; those beyond the panel's last are 0.
    Row read_token(const double* from) const {
        double padded[k_columns] = {};
        for (std::size_t j = 0; j < m_p.columns; ++j) padded[j] = from[j];
        return read(padded);
    }

    // Halves added to halves, down to one value: the order does not depend on the number of lanes.
    static double sum(Row row) {
        for (std::size_t n = k_vectors / 2; n >= 1; n /= 2) {
            for (std::size_t v = 0; v < n; ++v) row.x[v] += row.x[v + n];
        }
        double lanes[k_lanes];
        store<double, Bytes>(lanes, row.x[0]);
        for (std::size_t n = k_lanes / 2; n >= 1; n /= 2) {
            for (std::size_t j = 0; j < n; ++j) lanes[j] += lanes[j + n];
        }
        return lanes[0];
    }

    void copy(const double* from, double* to) const {
        for (std::size_t x = 0; x < m_size; ++x) to[x] = from[x];
    }

    void copy_in(const double* from, double* to) const {
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            for (std::size_t j = 0; j < k_columns; ++j) {
                to[i * k_columns + j] = j < m_p.columns ? from[i * m_p.state_stride + j] : 0;
            }
        }
    }

    // One token: leaves alpha S in `decayed`, and r and d; m_state becomes S_t.
    void forward(std::size_t t, double* decayed, double* r_out, double* d_out) {
        const double* k = m_p.k + t * m_p.key_stride;
        const double alpha = m_p.alpha[t * m_p.gate_stride];
        const double beta = m_p.beta[t * m_p.gate_stride];
        Row r = read_token(m_p.v + t * m_p.value_stride);
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            Row s = read(m_state + i * k_columns);
            for (std::size_t v = 0; v < k_vectors; ++v) {
                s.x[v] *= alpha;
                r.x[v] -= k[i] * s.x[v];
            }
            write(decayed + i * k_columns, s);
        }
        write(r_out, r);
        for (std::size_t v = 0; v < k_vectors; ++v) r.x[v] *= beta;
        write(d_out, r);
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            Row s = read(decayed + i * k_columns);
            for (std::size_t v = 0; v < k_vectors; ++v) s.x[v] += k[i] * r.x[v];
            write(m_state + i * k_columns, s);
        }
    }

    void backward(std::size_t t, const double* decayed, const double* r_in, const double* d_in) {
        const double* q = m_p.q + t * m_p.key_stride;
        const double* k = m_p.k + t * m_p.key_stride;
        double* dq = m_p.dq + t * m_p.gradient_stride;
        double* dk = m_p.dk_out + t * m_p.gradient_stride;
        const double beta = m_p.beta[t * m_p.gate_stride];
        const double alpha = m_p.alpha[t * m_p.gate_stride];
        const Row d_out = read_token(m_p.d_out + t * m_p.value_stride);
        const Row r = read(r_in);
        const Row d = read(d_in);
        Row dd = {};
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            Row G = read(m_gradient + i * k_columns);
            const Row Sb = read(decayed + i * k_columns);
            Row product;
            for (std::size_t v = 0; v < k_vectors; ++v) {
                G.x[v] += m_p.scale * q[i] * d_out.x[v];
                dd.x[v] += k[i] * G.x[v];
                product.x[v] = (Sb.x[v] + k[i] * d.x[v]) * d_out.x[v];
            }
            write(m_gradient + i * k_columns, G);
            dq[i] += m_p.scale * sum(product);
        }
        Row product;
        Row dr;
        for (std::size_t v = 0; v < k_vectors; ++v) {
            product.x[v] = dd.x[v] * r.x[v];
            dr.x[v] = beta * dd.x[v];
        }
        m_p.dbeta[t * m_p.gate_stride] += sum(product);
        double values[k_columns];
        write(values, dr);
        for (std::size_t j = 0; j < m_p.columns; ++j) m_p.dv[t * m_p.value_stride + j] = values[j];
        Row dg = {};
        for (std::size_t i = 0; i < m_p.dk; ++i) {
            Row G = read(m_gradient + i * k_columns);
            const Row Sb = read(decayed + i * k_columns);
            for (std::size_t v = 0; v < k_vectors; ++v) {
                product.x[v] = G.x[v] * d.x[v] - Sb.x[v] * dr.x[v];
                G.x[v] -= k[i] * dr.x[v];
                dg.x[v] += G.x[v] * Sb.x[v];
                G.x[v] *= alpha;
            }
            write(m_gradient + i * k_columns, G);
            dk[i] += sum(product);
        }
        m_p.dg[t * m_p.gate_stride] += sum(dg);
    }

    const AdjointPanel& m_p;
    std::size_t m_size;  // elements of a panel
    double *m_checkpoints, *m_decayed, *m_state, *m_gradient, *m_r, *m_d;
};

}  // namespace
}  // namespace gdnctl::oracle
