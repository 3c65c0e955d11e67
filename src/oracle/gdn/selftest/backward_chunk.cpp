#include "oracle/gdn/selftest/backward_chunk.h"

#include <algorithm>
#include <cmath>

namespace gdnctl::oracle {

namespace {

using T = BackwardTerm;

float dot(const float* a, const float* b, std::size_t n) {
    float sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

void round_to_bf16(Matrix& m) {
    for (float& x : m.values) x = static_cast<float>(rounded_to(static_cast<double>(x), DType::bf16));
}

}  // namespace

Matrix rows_of(const float* from, std::size_t rows, std::size_t width, std::size_t stride) {
    Matrix m(rows, width);
    for (Row i = 0; i < rows; ++i) {
        std::copy_n(from + i * stride, width, m.values.begin() + static_cast<std::ptrdiff_t>(i * width));
    }
    return m;
}

// Adds up the gates one by one: nothing cancels, and -infinity is preserved.
void BackwardChunk::prepare() {
    Gamma = Matrix(rows, rows);
    read.assign(rows, 0);
    insert.assign(rows, 0);
    double sum = 0;
    for (Row i = 0; i < rows; ++i) {
        sum += gate[i];
        read[i] = static_cast<float>(std::exp(sum));
        double between = 0;
        Gamma.at(i, i) = 1;
        for (Row j = i; j-- > 0;) {
            between += gate[j + 1];
            Gamma.at(i, j) = static_cast<float>(std::exp(between));
        }
    }
    keep = read[rows - 1];
    for (Row i = 0; i < rows; ++i) insert[i] = Gamma.at(rows - 1, i);
    M = Matrix(rows, rows);
    P = Matrix(rows, rows);
    U = Matrix(rows, dv);
    for (Row i = 0; i < rows; ++i) {
        for (Row j = 0; j <= i; ++j) {
            P.at(i, j) = scale * dot(q.row(i), k.row(j), dk) * Gamma.at(i, j);
            if (j < i) M.at(i, j) = beta[i] * dot(k.row(i), k.row(j), dk) * Gamma.at(i, j);
        }
        for (std::size_t c = 0; c < dv; ++c) {
            float seen = 0;
            for (std::size_t x = 0; x < dk; ++x) seen += k.at(i, x) * S.at(x, c);
            float u = beta[i] * (v.at(i, c) - read[i] * seen);
            for (Row j = 0; j < i; ++j) u -= M.at(i, j) * U.at(j, c);
            U.at(i, c) = u;
        }
    }
}

Matrix BackwardChunk::next_state() const {
    Matrix next = S;
    for (std::size_t x = 0; x < dk; ++x) {
        for (std::size_t c = 0; c < dv; ++c) {
            float sum = keep * S.at(x, c);
            for (Row i = 0; i < rows; ++i) sum += insert[i] * k.at(i, x) * U.at(i, c);
            next.at(x, c) = sum;
        }
    }
    return next;
}

ChunkGradient::ChunkGradient(const BackwardChunk& chunk, const BackwardFault& fault, const Matrix& D)
    : m_c(chunk), m_fault(fault), m_D(D), m_U(chunk.U) {
    if (fault.bf16_operands) {
        round_to_bf16(m_D);
        round_to_bf16(m_U);
    }
}

void ChunkGradient::run() {
    solve();
    pair_gradients();
    rows();
    gates();
    state();
}

float ChunkGradient::coefficient(T term, float decay, float beta, float scale) {
    if (m_fault.term != term) return decay * beta * scale;
    const std::size_t value = m_values++;
    if (value % m_fault.period != 0) return decay * beta * scale;
    const auto factor =
        static_cast<float>(m_fault.factor + m_fault.ripple * std::sin(7.0 * static_cast<double>(value)));
    switch (m_fault.dropped) {
        case Dropped::nothing: return factor * decay * beta * scale;
        case Dropped::decay: return factor * beta * scale;
        case Dropped::beta: return factor * decay * scale;
        case Dropped::scale: return factor * decay * beta;
    }
    return factor;
}

void ChunkGradient::solve() {
    const BackwardChunk& c = m_c;
    m_Y = Matrix(c.rows, c.dv);
    for (Row i = c.rows; i-- > 0;) {
        const float insert = coefficient(T::dU_state, c.insert[i]);
        for (std::size_t v = 0; v < c.dv; ++v) {
            float y = 0;
            for (Row t = i; t < c.rows; ++t) y += coefficient(T::dU_intra) * c.P.at(t, i) * c.d_out.at(t, v);
            for (std::size_t x = 0; x < c.dk; ++x) y += insert * c.k.at(i, x) * m_D.at(x, v);
            for (Row t = i + 1; t < c.rows; ++t) y -= coefficient(T::solve) * c.M.at(t, i) * m_Y.at(t, v);
            m_Y.at(i, v) = y;
        }
    }
    if (m_fault.bf16_operands) round_to_bf16(m_Y);
}

void ChunkGradient::pair_gradients() {
    const BackwardChunk& c = m_c;
    m_dP = Matrix(c.rows, c.rows);
    m_dM = Matrix(c.rows, c.rows);
    for (Row i = 0; i < c.rows; ++i) {
        const Row end = m_fault.upper_triangle ? c.rows : i + 1;
        for (Row j = 0; j < end; ++j) {
            m_dP.at(i, j) = coefficient(T::dP) * dot(c.d_out.row(i), m_U.row(j), c.dv);
            if (j < i) m_dM.at(i, j) = -coefficient(T::dM) * dot(m_Y.row(i), m_U.row(j), c.dv);
        }
    }
}

void ChunkGradient::rows() {
    const BackwardChunk& c = m_c;
    dq = Matrix(c.rows, c.dk);
    dk = Matrix(c.rows, c.dk);
    dv = Matrix(c.rows, c.dv);
    dbeta.assign(c.rows, 0);
    m_readout.assign(c.rows, 0);
    m_forgotten.assign(c.rows, 0);
    m_inserted.assign(c.rows, 0);
    for (Row i = 0; i < c.rows; ++i) {
        for (std::size_t x = 0; x < c.dk; ++x) {
            const float dOS = dot(c.d_out.row(i), c.S.row(x), c.dv);
            const float YS = dot(m_Y.row(i), c.S.row(x), c.dv);
            const float UD = dot(m_U.row(i), m_D.row(x), c.dv);
            m_readout[i] += c.q.at(i, x) * dOS;
            m_forgotten[i] += c.k.at(i, x) * YS;
            m_inserted[i] += c.k.at(i, x) * UD;
            dq.at(i, x) = coefficient(T::dQ_state, c.read[i], 1, c.scale) * dOS;
            dk.at(i, x) =
                coefficient(T::dK_state, c.insert[i]) * UD - coefficient(T::dK_forget, c.read[i], c.beta[i]) * YS;
        }
        for (std::size_t v = 0; v < c.dv; ++v) {
            dv.at(i, v) = coefficient(T::dV, 1, c.beta[i]) * m_Y.at(i, v);
            dbeta[i] += coefficient(T::dbeta_row) * m_Y.at(i, v) * c.v.at(i, v);
        }
        dbeta[i] -= coefficient(T::dbeta_row, c.read[i]) * m_forgotten[i];
    }
    pairs();
}

void ChunkGradient::pairs() {
    const BackwardChunk& c = m_c;
    for (Row i = 0; i < c.rows; ++i) {
        for (Row j = 0; j < c.rows; ++j) {
            const float P = m_dP.at(i, j);
            const float M = m_dM.at(i, j);
            if (P == 0 && M == 0) continue;
            const float Gam = j <= i ? c.Gamma.at(i, j) : 1;
            if (j < i) {
                dbeta[i] += coefficient(T::dbeta_gram, Gam) * M * dot(c.k.row(i), c.k.row(j), c.dk);
            }
            const float to_query = coefficient(T::dQ_intra, Gam, 1, c.scale) * P;
            const float to_key = coefficient(T::dK_intra, Gam, 1, c.scale) * P;
            const float to_row = coefficient(T::dK_row, Gam, c.beta[i]) * M;
            const float to_column = coefficient(T::dK_column, Gam, c.beta[i]) * M;
            for (std::size_t x = 0; x < c.dk; ++x) {
                dq.at(i, x) += to_query * c.k.at(j, x);
                dk.at(j, x) += to_key * c.q.at(i, x);
                dk.at(i, x) += to_row * c.k.at(j, x);
                dk.at(j, x) += to_column * c.k.at(i, x);
            }
        }
    }
}

// Each row's contribution to the gradient of its running sum c_i, except for the pairs.
float ChunkGradient::row_part(Row i) {
    return coefficient(T::dg_read, m_c.read[i], 1, m_c.scale) * m_readout[i] -
           coefficient(T::dg_forget, m_c.read[i], m_c.beta[i]) * m_forgotten[i];
}

void ChunkGradient::gates() {
    const BackwardChunk& c = m_c;
    Matrix H(c.rows, c.rows);
    for (Row i = 0; i < c.rows; ++i) {
        for (Row j = 0; j <= i; ++j) {
            H.at(i, j) = coefficient(T::dg_intra) * m_dP.at(i, j) * c.P.at(i, j) +
                         coefficient(T::dg_solve) * m_dM.at(i, j) * c.M.at(i, j);
        }
    }
    float kept = 0;
    for (std::size_t x = 0; x < c.dk; ++x) kept += dot(m_D.row(x), c.S.row(x), c.dv);
    kept *= coefficient(T::dg_keep, c.keep);
    if (m_fault.gates != GateGradient::direct) {
        by_running_sums(H, kept);
        return;
    }
    dg.assign(c.rows, kept);
    std::vector<float> below(c.rows, 0);
    float later = 0;
    for (Row t = c.rows; t-- > 0;) {
        later += row_part(t);
        dg[t] += later;
        for (Row j = 0; j < t; ++j) {
            below[j] += H.at(t, j);
            dg[t] += below[j];
        }
        for (Row i = 0; i < t; ++i) dg[t] += coefficient(T::dg_insert, c.insert[i]) * m_inserted[i];
    }
}

// As in libraries: the gradient of c, then its reverse sum.
void ChunkGradient::by_running_sums(const Matrix& H, float kept) {
    const BackwardChunk& c = m_c;
    std::vector<float> dc(c.rows, 0);
    float inserted = 0;
    for (Row i = 0; i < c.rows; ++i) {
        for (Row j = 0; j < i; ++j) {
            dc[i] += H.at(i, j);
            dc[j] -= H.at(i, j);
        }
        const float w = coefficient(T::dg_insert, c.insert[i]) * m_inserted[i];
        dc[i] += row_part(i) - w;
        inserted += w;
    }
    dc[c.rows - 1] += inserted + kept;
    dg = dc;
    if (m_fault.gates == GateGradient::no_sum) return;
    float sum = 0;
    for (Row n = 0; n < c.rows; ++n) {
        const Row i = m_fault.gates == GateGradient::forwards ? n : c.rows - 1 - n;
        const float before = sum;
        sum += dc[i];
        dg[i] = m_fault.gates == GateGradient::exclusive ? before : sum;
    }
}

void ChunkGradient::state() {
    const BackwardChunk& c = m_c;
    d_state = Matrix(c.dk, c.dv);
    const float keep = coefficient(T::dS_keep, c.keep);
    std::vector<float> read(c.rows), forget(c.rows);
    for (Row i = 0; i < c.rows; ++i) {
        read[i] = coefficient(T::dS_read, c.read[i], 1, c.scale);
        forget[i] = coefficient(T::dS_forget, c.read[i], c.beta[i]);
    }
    for (std::size_t x = 0; x < c.dk; ++x) {
        for (std::size_t v = 0; v < c.dv; ++v) {
            float sum = keep * m_D.at(x, v);
            for (Row i = 0; i < c.rows; ++i) {
                sum += read[i] * c.q.at(i, x) * c.d_out.at(i, v) - forget[i] * c.k.at(i, x) * m_Y.at(i, v);
            }
            d_state.at(x, v) = sum;
        }
    }
}

}  // namespace gdnctl::oracle
