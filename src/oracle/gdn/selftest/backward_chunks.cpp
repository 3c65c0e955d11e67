// The chunked backward for whole problems, one value head of one sequence at a time.
#include <algorithm>

#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/kernels/adjoint_chain.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/gdn/selftest/backward_chunk.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

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
        run_tasks(m_p.sequences.size() * m_Hv, threads, [this] { return [this](std::size_t task) { lane(task); }; });
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

    void lane(std::size_t task) {
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

}  // namespace gdnctl::oracle
