// One chunk of the chunked backward in docs/reference/oracle-methods.md, term by term.
#include "unit/oracle/mutants/backward_mutants.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::testing {

namespace {

using Row = std::size_t;

// A row-major matrix.
struct Matrix {
    std::size_t columns = 0;
    std::vector<float> values;

    Matrix() = default;
    Matrix(std::size_t rows, std::size_t width) : columns(width), values(rows * width, 0.0F) {}
    float& at(Row i, std::size_t j) { return values[i * columns + j]; }
    float at(Row i, std::size_t j) const { return values[i * columns + j]; }
    const float* row(Row i) const { return values.data() + i * columns; }
};

// One chunk of one head.
struct BackwardChunk {
    std::size_t rows = 0, dk = 0, dv = 0;
    float scale = 1;
    Matrix q, k, v, d_out, S;
    std::vector<float> beta;
    std::vector<double> gate;
    Matrix Gamma, M, P, U;            // Gamma_ij for i >= j
    std::vector<float> read, insert;  // e^c, e^(c_last - c)
    float keep = 1;                   // e^c_last

    void prepare();
    Matrix next_state() const;
};

// The gradients of one chunk from D, the gradient of its end state.
class ChunkGradient {
public:
    ChunkGradient(const BackwardChunk& chunk, const BackwardFault& fault, const Matrix& D);
    void run();

    Matrix dq, dk, dv, d_state;
    std::vector<float> dg, dbeta;

private:
    // A term's coefficient, times the factors that a fault may omit.
    float coefficient(BackwardTerm term, float decay, float beta = 1, float scale = 1);
    float coefficient(BackwardTerm term) { return coefficient(term, 1); }
    float row_part(Row i);
    void solve();
    void pair_gradients();
    void rows();
    void pairs();
    void gates();
    void by_running_sums(const Matrix& H, float kept);
    void state();

    const BackwardChunk& m_c;
    const BackwardFault& m_fault;
    std::size_t m_values = 0;  // of the faulty term, so far
    Matrix m_D, m_U, m_Y, m_dP, m_dM;
    std::vector<float> m_readout, m_forgotten, m_inserted;  // <Q, dO S^T>, <K, Y S^T>, <K, U D^T>
};

using T = BackwardTerm;

float dot(const float* a, const float* b, std::size_t n) {
    float sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

void round_to_bf16(Matrix& m) {
    for (float& x : m.values) x = static_cast<float>(rounded_to(static_cast<double>(x), DType::bf16));
}

// Copies `width` values from each of `rows` rows with the given stride.
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

}  // namespace

// The chunked backward for whole problems, one value head of one sequence at a time.

namespace {

class BackwardRun {
public:
    BackwardRun(const GdnReference& r, const BackwardFault& fault, const MutantScope& scope, std::size_t chunk)
        : m_r(r),
          m_p(r.problem),
          m_fault(fault),
          m_scope(scope),
          m_chunk(chunk),
          m_in(prepare<float>(r.problem, r.contract.value, 1)),
          m_Hk(static_cast<std::size_t>(m_p.dims.Hk)),
          m_Hv(static_cast<std::size_t>(m_p.dims.Hv)),
          m_dk(static_cast<std::size_t>(m_p.dims.dk)),
          m_dv(static_cast<std::size_t>(m_p.dims.dv)) {
        const auto rows = static_cast<std::size_t>(m_p.rows());
        const auto& d_out = r.backward->cotangents.d_out;
        m_d_out.assign(d_out.begin(), d_out.end());
        m_dq.assign(rows * m_Hv * m_dk, 0);
        m_dk_heads.assign(rows * m_Hv * m_dk, 0);
        m_out.dv.assign(m_p.v.size(), 0);
        m_out.dg.assign(rows * m_Hv, 0);
        m_out.dbeta.assign(rows * m_Hv, 0);
        m_out.d_initial_state.assign(m_in.state.size(), 0);
    }

    GdnGradients run(int threads) {
        run_tasks(m_p.sequences.size() * m_Hv, threads,
                  [this] { return [this](std::size_t task) { run_one_head(task); }; });
        const GdnContract& c = m_r.contract.value;
        m_out.dq = through(m_p.q, m_in.q, grouped(m_dq));
        m_out.dk = through(m_p.k, m_in.k, grouped(m_dk_heads));
        finish_gradients(m_p, c, {m_in.g.begin(), m_in.g.end()}, {m_in.beta.begin(), m_in.beta.end()}, m_out);
        if (m_fault.after) m_fault.after(m_out, m_r);
        return std::move(m_out);
    }

private:
    bool in_scope(std::size_t head) const {
        return m_scope.heads.empty() || std::find(m_scope.heads.begin(), m_scope.heads.end(),
                                                  static_cast<std::int64_t>(head)) != m_scope.heads.end();
    }

    BackwardChunk chunk_at(std::size_t head, std::size_t row, std::size_t rows, Matrix state) const {
        BackwardChunk c;
        c.rows = rows;
        c.dk = m_dk;
        c.dv = m_dv;
        c.scale = m_in.scale;
        const std::size_t key = (row * m_Hk + m_in.key_head[head]) * m_dk;
        const std::size_t gate = row * m_Hv + head;
        c.q = rows_of(m_in.q.data() + key, rows, m_dk, m_Hk * m_dk);
        c.k = rows_of(m_in.k.data() + key, rows, m_dk, m_Hk * m_dk);
        c.v = rows_of(m_in.v.data() + gate * m_dv, rows, m_dv, m_Hv * m_dv);
        c.d_out = rows_of(m_d_out.data() + gate * m_dv, rows, m_dv, m_Hv * m_dv);
        for (Row i = 0; i < rows; ++i) {
            c.beta.push_back(m_in.beta[gate + i * m_Hv]);
            c.gate.push_back(static_cast<double>(m_in.g[gate + i * m_Hv]));
        }
        c.S = std::move(state);
        c.prepare();
        return c;
    }

    void run_one_head(std::size_t task) {
        const std::size_t head = task % m_Hv;
        const GdnSequence sequence = m_p.sequences[task / m_Hv];
        const bool faulty = in_scope(head);
        std::vector<BackwardChunk> chunks;
        Matrix state(m_dk, m_dv);
        if (!faulty || m_fault.initial_state) {
            state = rows_of(m_in.state.data() + task * m_dk * m_dv, m_dk, m_dv, m_dv);
        }
        for (std::int64_t row = sequence.begin; row < sequence.end; row += static_cast<std::int64_t>(m_chunk)) {
            const std::size_t rows = std::min(m_chunk, static_cast<std::size_t>(sequence.end - row));
            chunks.push_back(chunk_at(head, static_cast<std::size_t>(row), rows, std::move(state)));
            state = chunks.back().next_state();
        }
        Matrix D(m_dk, m_dv);
        const auto& given = m_r.backward->cotangents.d_final_state;
        if (!given.empty() && (!faulty || m_fault.final_cotangent)) {
            for (std::size_t i = 0; i < m_dk * m_dv; ++i) {
                D.values[i] = static_cast<float>(given[task * m_dk * m_dv + i]);
            }
        }
        static const BackwardFault k_none;
        for (std::size_t n = chunks.size(); n-- > 0;) {
            const bool here = faulty && (m_scope.chunk < 0 || n == static_cast<std::size_t>(m_scope.chunk));
            ChunkGradient gradient(chunks[n], here ? m_fault : k_none, D);
            gradient.run();
            store(gradient, head, static_cast<std::size_t>(sequence.begin) + n * m_chunk, chunks[n].rows);
            D = std::move(gradient.d_state);
            if (here && !m_fault.carried && n > 0) D = Matrix(m_dk, m_dv);
        }
        for (std::size_t i = 0; i < m_dk * m_dv; ++i) {
            m_out.d_initial_state[task * m_dk * m_dv + i] = static_cast<double>(D.values[i]);
        }
    }

    void store(const ChunkGradient& g, std::size_t head, std::size_t row, std::size_t rows) {
        for (Row i = 0; i < rows; ++i) {
            const std::size_t gate = (row + i) * m_Hv + head;
            for (std::size_t x = 0; x < m_dk; ++x) {
                m_dq[gate * m_dk + x] = g.dq.at(i, x);
                m_dk_heads[gate * m_dk + x] = g.dk.at(i, x);
            }
            for (std::size_t v = 0; v < m_dv; ++v) m_out.dv[gate * m_dv + v] = static_cast<double>(g.dv.at(i, v));
            m_out.dg[gate] = static_cast<double>(g.dg[i]);
            m_out.dbeta[gate] = static_cast<double>(g.dbeta[i]);
        }
    }

    // Combined over the value heads of a key head.
    std::vector<double> grouped(const std::vector<float>& heads) const {
        const std::size_t r = m_Hv / m_Hk;
        std::vector<double> result(heads.size() / m_Hv * m_Hk, 0);
        for (std::size_t row = 0; row < heads.size() / (m_Hv * m_dk); ++row) {
            std::vector<std::size_t> seen(m_Hk, 0);
            for (std::size_t head = 0; head < m_Hv; ++head) {
                const std::size_t key = m_in.key_head[head];
                const std::size_t n = seen[key]++;
                if (m_fault.group == GroupGradient::first && n > 0) continue;
                if (m_fault.group == GroupGradient::last && n + 1 < r) continue;
                const double share = m_fault.group == GroupGradient::average ? 1 / static_cast<double>(r) : 1;
                for (std::size_t x = 0; x < m_dk; ++x) {
                    result[(row * m_Hk + key) * m_dk + x] +=
                        share * static_cast<double>(heads[(row * m_Hv + head) * m_dk + x]);
                }
            }
        }
        return result;
    }

    std::vector<double> through(const std::vector<double>& given, const std::vector<float>& normalised,
                                std::vector<double> gradient) const {
        const GdnContract& c = m_r.contract.value;
        if (m_fault.norm == NormGradient::missing) return gradient;
        const bool projected = m_fault.norm == NormGradient::full;
        std::vector<double> unit(normalised.size(), 0);
        if (projected) unit.assign(normalised.begin(), normalised.end());
        return through_norm(m_p, c, given, unit, std::move(gradient));
    }

    const GdnReference& m_r;
    const GdnProblem& m_p;
    const BackwardFault& m_fault;
    const MutantScope& m_scope;
    std::size_t m_chunk;
    Prepared<float> m_in;
    std::size_t m_Hk, m_Hv, m_dk, m_dv;
    std::vector<float> m_d_out, m_dq, m_dk_heads;
    GdnGradients m_out;
};

}  // namespace

GdnGradients run_backward_chunks(const GdnReference& reference, const BackwardFault& fault, const MutantScope& scope,
                                 std::size_t chunk, int threads) {
    return BackwardRun(reference, fault, scope, chunk).run(threads);
}

namespace {

using BackwardMutants = std::vector<BackwardMutant>;
using Stages = std::vector<std::string>;
using Term = BackwardTerm;

BackwardMutant term(std::string name, Stages stages, Term which, double factor, Dropped dropped = Dropped::nothing) {
    BackwardMutant m;
    m.name = std::move(name);
    m.stages = std::move(stages);
    m.fault.term = which;
    m.fault.factor = factor;
    m.fault.dropped = dropped;
    return m;
}

template <class Change>
BackwardMutant with(std::string name, Stages stages, Change change, bool whole_only) {
    BackwardMutant m;
    m.name = std::move(name);
    m.stages = std::move(stages);
    change(m.fault);
    m.whole_only = whole_only;
    return m;
}

BackwardMutant after(std::string name, Stages stages, std::function<void(GdnGradients&, const GdnReference&)> spoil) {
    return with(std::move(name), std::move(stages), [&](BackwardFault& f) { f.after = std::move(spoil); }, true);
}

// dU, dP, Y, dM: used by several gradients.
void add_shared(BackwardMutants& all) {
    const Stages shared = {"bwd_shared"};
    all.push_back(term("P^T dO left out", shared, Term::dU_intra, 0));
    all.push_back(term("P^T dO 10 % too large", shared, Term::dU_intra, 1.1));
    all.push_back(term("K D left out of dU", shared, Term::dU_state, 0));
    all.push_back(term("K D without decay", shared, Term::dU_state, 1, Dropped::decay));
    all.push_back(term("Y without the solve", shared, Term::solve, 0));
    all.push_back(term("Y solved with the wrong sign", shared, Term::solve, -1));
    all.push_back(term("dP left out", shared, Term::dP, 0));
    all.push_back(term("dP with the wrong sign", shared, Term::dP, -1));
    all.push_back(term("dM left out", shared, Term::dM, 0));
    all.push_back(term("dM with the wrong sign", shared, Term::dM, -1));
    all.push_back(with("dP without its mask", shared, [](BackwardFault& f) { f.upper_triangle = true; }, false));
    all.push_back(with(
        "Y, U and D in bf16", {"rounding", "bwd_shared"}, [](BackwardFault& f) { f.bf16_operands = true; }, false));
}

// The gradient of the state, from chunk to chunk.
void add_state(BackwardMutants& all) {
    const Stages shared = {"bwd_shared"};
    all.push_back(term("D without decay", shared, Term::dS_keep, 1, Dropped::decay));
    all.push_back(term("D left out of dS", shared, Term::dS_keep, 0));
    all.push_back(term("Q^T dO left out of dS", shared, Term::dS_read, 0));
    all.push_back(term("Q^T dO without decay", shared, Term::dS_read, 1, Dropped::decay));
    all.push_back(term("Q^T dO without the scale", shared, Term::dS_read, 1, Dropped::scale));
    all.push_back(term("K^T Y left out of dS", shared, Term::dS_forget, 0));
    all.push_back(term("K^T Y without decay", shared, Term::dS_forget, 1, Dropped::decay));
    all.push_back(term("K^T Y without beta", shared, Term::dS_forget, 1, Dropped::beta));
    all.push_back(
        with("the state's gradient is not carried", shared, [](BackwardFault& f) { f.carried = false; }, false));
    all.push_back(with(
        "the final state's gradient is dropped", shared, [](BackwardFault& f) { f.final_cotangent = false; }, true));
    all.push_back(
        with("recomputed without the initial state", shared, [](BackwardFault& f) { f.initial_state = false; }, true));
    all.push_back(after("dS0 transposed", {"dS0"}, [](GdnGradients& g, const GdnReference& r) {
        g.d_initial_state = to_layout(g.d_initial_state, r.problem.dims, StateLayout::value_key);
    }));
    all.push_back(after("dS0 is dS_T", {"dS0"}, [](GdnGradients& g, const GdnReference& r) {
        g.d_initial_state = r.backward->cotangents.d_final_state;
    }));
}

void add_values(BackwardMutants& all) {
    all.push_back(term("dv without beta", {"dv"}, Term::dV, 1, Dropped::beta));
    all.push_back(term("dv 5 % too small", {"dv"}, Term::dV, 0.95));
    all.push_back(term("beta's gradient without its second term", {"dbeta"}, Term::dbeta_gram, 0));
    all.push_back(term("beta's second term without decay", {"dbeta"}, Term::dbeta_gram, 1, Dropped::decay));
    all.push_back(term("beta's gradient without its first term", {"dbeta"}, Term::dbeta_row, 0));
    all.push_back(term("beta's gradient without K S's decay", {"dbeta"}, Term::dbeta_row, 1, Dropped::decay));
    all.push_back(after("dbeta times beta", {"dbeta"}, [](GdnGradients& g, const GdnReference& r) {
        for (std::size_t i = 0; i < g.dbeta.size(); ++i) g.dbeta[i] *= r.problem.beta[i];
    }));
}

void add_keys(BackwardMutants& all) {
    all.push_back(term("dO S^T left out of dq", {"dq"}, Term::dQ_state, 0));
    all.push_back(term("dO S^T without decay", {"dq"}, Term::dQ_state, 1, Dropped::decay));
    all.push_back(term("dO S^T without the scale", {"dq"}, Term::dQ_state, 1, Dropped::scale));
    all.push_back(term("dP K left out of dq", {"dq"}, Term::dQ_intra, 0));
    all.push_back(term("dP K without decay", {"dq"}, Term::dQ_intra, 1, Dropped::decay));
    all.push_back(term("dP K without the scale", {"dq"}, Term::dQ_intra, 1, Dropped::scale));
    all.push_back(term("U D^T left out of dk", {"dk"}, Term::dK_state, 0));
    all.push_back(term("U D^T without decay", {"dk"}, Term::dK_state, 1, Dropped::decay));
    all.push_back(term("Y S^T left out of dk", {"dk"}, Term::dK_forget, 0));
    all.push_back(term("Y S^T with the wrong sign", {"dk"}, Term::dK_forget, -1));
    all.push_back(term("Y S^T without beta", {"dk"}, Term::dK_forget, 1, Dropped::beta));
    all.push_back(term("dP^T Q left out of dk", {"dk"}, Term::dK_intra, 0));
    all.push_back(term("dP^T Q without the scale", {"dk"}, Term::dK_intra, 1, Dropped::scale));
    all.push_back(term("N K left out of dk", {"dk"}, Term::dK_row, 0));
    all.push_back(term("N^T K left out of dk", {"dk"}, Term::dK_column, 0));
    all.push_back(term("N^T K without beta", {"dk"}, Term::dK_column, 1, Dropped::beta));
    const Stages group = {"gva_grad"};
    all.push_back(
        with("first value head alone", group, [](BackwardFault& f) { f.group = GroupGradient::first; }, true));
    all.push_back(with("last value head alone", group, [](BackwardFault& f) { f.group = GroupGradient::last; }, true));
    all.push_back(
        with("average over the value heads", group, [](BackwardFault& f) { f.group = GroupGradient::average; }, true));
    const Stages norm = {"l2norm_grad"};
    all.push_back(
        with("l2norm's gradient missing", norm, [](BackwardFault& f) { f.norm = NormGradient::missing; }, true));
    all.push_back(with(
        "l2norm's projection missing", norm, [](BackwardFault& f) { f.norm = NormGradient::no_projection; }, true));
    all.push_back(after("dq and dk exchanged", {"bwd_shared", "dq", "dk", "gva_grad", "l2norm_grad"},
                        [](GdnGradients& g, const GdnReference&) { std::swap(g.dq, g.dk); }));
    all.push_back(after("dq has the wrong sign", {"dq"}, [](GdnGradients& g, const GdnReference&) {
        for (double& x : g.dq) x = -x;
    }));
}

void add_gates(BackwardMutants& all) {
    const Stages dg = {"dg"};
    all.push_back(term("dP P left out of dg", dg, Term::dg_intra, 0));
    all.push_back(term("dM M left out of dg", dg, Term::dg_solve, 0));
    all.push_back(term("Q S left out of dg", dg, Term::dg_read, 0));
    all.push_back(term("K S left out of dg", dg, Term::dg_forget, 0));
    all.push_back(term("K S without beta in dg", dg, Term::dg_forget, 1, Dropped::beta));
    all.push_back(term("writes left out of dg", dg, Term::dg_insert, 0));
    all.push_back(term("writes without decay in dg", dg, Term::dg_insert, 1, Dropped::decay));
    all.push_back(term("the state's decay left out of dg", dg, Term::dg_keep, 0));
    all.push_back(term("the state's decay without decay in dg", dg, Term::dg_keep, 1, Dropped::decay));
    for (const auto& [name, gates] : {std::pair{"dg without its reverse sum", GateGradient::no_sum},
                                      {"dg summed forwards", GateGradient::forwards},
                                      {"dg's sum exclusive", GateGradient::exclusive}}) {
        const GateGradient how = gates;
        all.push_back(with(name, dg, [how](BackwardFault& f) { f.gates = how; }, false));
    }
    all.push_back(after("one value of dg is NaN", {"dg", "bwd_shared"},
                        [](GdnGradients& g, const GdnReference&) { g.dg[g.dg.size() / 2] = std::nan(""); }));
    all.push_back(after("dg of alpha", {"dg"}, [](GdnGradients& g, const GdnReference& r) {
        for (std::size_t i = 0; i < g.dg.size(); ++i) g.dg[i] /= std::exp(r.problem.gate[i]);
    }));
}

}  // namespace

std::vector<BackwardMutant> unexpected_backward_mutants() {
    struct Named {
        Term term;
        const char* name;
        const char* stage;
    };
    constexpr std::array k_terms = {
        Named{Term::dU_intra, "P^T dO", "bwd_shared"},
        Named{Term::dU_state, "K D in dU", "bwd_shared"},
        Named{Term::solve, "the solve for Y", "bwd_shared"},
        Named{Term::dP, "dP", "bwd_shared"},
        Named{Term::dM, "dM", "bwd_shared"},
        Named{Term::dS_keep, "D in dS", "bwd_shared"},
        Named{Term::dS_read, "Q^T dO in dS", "bwd_shared"},
        Named{Term::dS_forget, "K^T Y in dS", "bwd_shared"},
        Named{Term::dV, "dv", "dv"},
        Named{Term::dbeta_row, "beta's first term", "dbeta"},
        Named{Term::dbeta_gram, "beta's second term", "dbeta"},
        Named{Term::dQ_state, "dO S^T in dq", "dq"},
        Named{Term::dQ_intra, "dP K in dq", "dq"},
        Named{Term::dK_state, "U D^T in dk", "dk"},
        Named{Term::dK_forget, "Y S^T in dk", "dk"},
        Named{Term::dK_intra, "dP^T Q in dk", "dk"},
        Named{Term::dK_row, "N K in dk", "dk"},
        Named{Term::dK_column, "N^T K in dk", "dk"},
        Named{Term::dg_intra, "dP P in dg", "dg"},
        Named{Term::dg_solve, "dM M in dg", "dg"},
        Named{Term::dg_read, "Q S in dg", "dg"},
        Named{Term::dg_forget, "K S in dg", "dg"},
        Named{Term::dg_insert, "writes in dg", "dg"},
        Named{Term::dg_keep, "the state's decay in dg", "dg"},
    };
    BackwardMutants all;
    for (const Named& n : k_terms) {
        BackwardMutant some = term(fmt::format("{}, one value in five 0", n.name), {n.stage}, n.term, 0);
        some.fault.period = 5;
        BackwardMutant other = term(fmt::format("{}, one value in three turned round", n.name), {n.stage}, n.term, -1);
        other.fault.period = 3;
        BackwardMutant noisy = term(fmt::format("{}, up to 10 % more or less", n.name), {n.stage}, n.term, 1);
        noisy.fault.ripple = 0.1;
        for (BackwardMutant* m : {&some, &other, &noisy}) all.push_back(std::move(*m));
    }
    return all;
}

std::vector<BackwardMutant> all_backward_mutants() {
    BackwardMutants all;
    add_shared(all);
    add_state(all);
    add_values(all);
    add_keys(all);
    add_gates(all);
    return all;
}

}  // namespace gdnctl::oracle::testing
