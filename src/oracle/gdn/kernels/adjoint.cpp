// The adjoint of the recurrence and of the steps before it. A task is one value head of one sequence: its panels add to
// the same rows of dq and dk, in order.
#include "oracle/gdn/kernels/adjoint.h"

#include <algorithm>
#include <cmath>

#include "oracle/gdn/kernels/adjoint_chain.h"
#include "oracle/gdn/kernels/clipped.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/gdn/kernels/simd/adjoint_panel.h"
#include "oracle/simd/aligned.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

AdjointFunction function_for(Isa isa) {
    return isa == Isa::avx512 ? adjoint64_avx512 : isa == Isa::avx2 ? adjoint64_avx2 : adjoint64_scalar;
}

class Adjoint {
public:
    Adjoint(const GdnProblem& p, const GdnContract& c, const GdnCotangents& cotangents, int threads)
        : m_p(p),
          m_c(c),
          m_cotangents(cotangents),
          m_in(prepare<double>(p, c, threads)),
          m_Hk(static_cast<std::size_t>(p.dims.Hk)),
          m_Hv(static_cast<std::size_t>(p.dims.Hv)),
          m_dk(static_cast<std::size_t>(p.dims.dk)),
          m_dv(static_cast<std::size_t>(p.dims.dv)) {
        m_alpha.assign(m_in.g.size(), 0.0);
        std::transform(m_in.g.begin(), m_in.g.end(), m_alpha.begin(), [](double g) { return std::exp(g); });
        const auto rows = static_cast<std::size_t>(p.rows());
        m_dq.assign(rows * m_Hv * m_dk, 0.0);
        m_dk_heads.assign(rows * m_Hv * m_dk, 0.0);
        m_out.dv.assign(p.v.size(), 0.0);
        m_out.dg.assign(m_in.g.size(), 0.0);
        m_out.dbeta.assign(m_in.g.size(), 0.0);
        m_out.d_initial_state = cotangents.d_final_state;
        if (m_out.d_initial_state.empty()) m_out.d_initial_state.assign(m_in.state.size(), 0.0);
    }

    GdnGradients run(int threads, Isa isa) {
        if (clips_sums(m_p, m_c)) {
            run_tasks(m_p.sequences.size() * m_Hv, threads,
                      [&] { return [this](std::size_t task) { run_clipped_head(task); }; });
            return finished();
        }
        const AdjointFunction function = function_for(isa);
        std::size_t largest = 0;
        for (const GdnSequence& sequence : m_p.sequences) {
            const auto tokens = static_cast<std::size_t>(sequence.end - sequence.begin);
            if (tokens > 0) largest = std::max(largest, adjoint_scratch(tokens, m_dk, segment_of(tokens)));
        }
        run_tasks(m_p.sequences.size() * m_Hv, threads, [&] {
            return [this, function, scratch = aligned<double>(largest)](std::size_t task) {
                run_head(task, function, scratch.get());
            };
        });
        return finished();
    }

private:
    GdnGradients finished() {
        m_out.dq = through_norm(m_p, m_c, m_p.q, m_in.q, summed(m_dq), &m_out.q_along);
        m_out.dk = through_norm(m_p, m_c, m_p.k, m_in.k, summed(m_dk_heads), &m_out.k_along);
        finish_gradients(m_p, m_c, m_in.g, m_in.beta, m_out);
        return std::move(m_out);
    }

    static std::size_t segment_of(std::size_t tokens) {
        return static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(tokens))));
    }

    void run_clipped_head(std::size_t task) {
        const std::size_t head = task % m_Hv;
        const GdnSequence sequence = m_p.sequences[task / m_Hv];
        const auto begin = static_cast<std::size_t>(sequence.begin);
        const std::size_t key = (begin * m_Hk + m_in.key_head[head]) * m_dk;
        const std::size_t gate = begin * m_Hv + head;
        ClippedLane lane;
        lane.q = m_in.q.data() + key;
        lane.k = m_in.k.data() + key;
        lane.v = m_in.v.data() + gate * m_dv;
        lane.g = m_in.g.data() + gate;
        lane.beta = m_in.beta.data() + gate;
        lane.key_stride = m_Hk * m_dk;
        lane.value_stride = m_Hv * m_dv;
        lane.gate_stride = m_Hv;
        lane.gradient_stride = m_Hv * m_dk;
        lane.tokens = static_cast<std::size_t>(sequence.end) - begin;
        lane.dk = m_dk;
        lane.dv = m_dv;
        lane.chunk = static_cast<std::size_t>(m_c.chunk);
        lane.scale = m_in.scale;
        lane.clip = *m_c.exp_clip;
        lane.state = m_in.state.data() + task * m_dk * m_dv;
        lane.d_out = m_cotangents.d_out.data() + gate * m_dv;
        lane.d_state = m_out.d_initial_state.data() + task * m_dk * m_dv;
        lane.dq = m_dq.data() + gate * m_dk;
        lane.dk_out = m_dk_heads.data() + gate * m_dk;
        lane.dv_out = m_out.dv.data() + gate * m_dv;
        lane.dg = m_out.dg.data() + gate;
        lane.dbeta = m_out.dbeta.data() + gate;
        clipped_backward(lane);
    }

    void run_head(std::size_t task, AdjointFunction function, double* scratch) {
        const std::size_t head = task % m_Hv;
        const GdnSequence sequence = m_p.sequences[task / m_Hv];
        const auto begin = static_cast<std::size_t>(sequence.begin);
        const auto tokens = static_cast<std::size_t>(sequence.end) - begin;
        if (tokens == 0) return;
        AdjointPanel panel;
        const std::size_t key = (begin * m_Hk + m_in.key_head[head]) * m_dk;
        const std::size_t gate = begin * m_Hv + head;
        panel.q = m_in.q.data() + key;
        panel.k = m_in.k.data() + key;
        panel.alpha = m_alpha.data() + gate;
        panel.beta = m_in.beta.data() + gate;
        panel.dq = m_dq.data() + gate * m_dk;
        panel.dk_out = m_dk_heads.data() + gate * m_dk;
        panel.dg = m_out.dg.data() + gate;
        panel.dbeta = m_out.dbeta.data() + gate;
        panel.key_stride = m_Hk * m_dk;
        panel.gradient_stride = m_Hv * m_dk;
        panel.value_stride = m_Hv * m_dv;
        panel.gate_stride = m_Hv;
        panel.tokens = tokens;
        panel.dk = m_dk;
        panel.state_stride = m_dv;
        panel.scale = m_in.scale;
        panel.segment = segment_of(tokens);
        panel.scratch = scratch;
        for (std::size_t column = 0; column < m_dv; column += k_adjoint_columns) {
            panel.columns = std::min(k_adjoint_columns, m_dv - column);
            panel.v = m_in.v.data() + gate * m_dv + column;
            panel.d_out = m_cotangents.d_out.data() + gate * m_dv + column;
            panel.dv = m_out.dv.data() + gate * m_dv + column;
            panel.state = m_in.state.data() + task * m_dk * m_dv + column;
            panel.d_state = m_out.d_initial_state.data() + task * m_dk * m_dv + column;
            function(panel);
        }
    }

    // Sums over the value heads of a key head.
    std::vector<double> summed(const std::vector<double>& heads) const {
        std::vector<double> result(heads.size() / m_Hv * m_Hk);
        for (std::size_t row = 0; row < heads.size() / (m_Hv * m_dk); ++row) {
            for (std::size_t head = 0; head < m_Hv; ++head) {
                const double* from = heads.data() + (row * m_Hv + head) * m_dk;
                double* to = result.data() + (row * m_Hk + m_in.key_head[head]) * m_dk;
                for (std::size_t i = 0; i < m_dk; ++i) to[i] += from[i];
            }
        }
        return result;
    }

    const GdnProblem& m_p;
    const GdnContract& m_c;
    const GdnCotangents& m_cotangents;
    Prepared<double> m_in;
    std::size_t m_Hk, m_Hv, m_dk, m_dv;
    std::vector<double> m_alpha;
    std::vector<double> m_dq, m_dk_heads;  // [B*T, Hv, dk], per value head
    GdnGradients m_out;
};

}  // namespace

GdnGradients run_adjoint64(const GdnProblem& problem, const GdnContract& contract, const GdnCotangents& cotangents,
                           int threads, Isa isa) {
    return Adjoint(problem, contract, cotangents, threads).run(threads, isa);
}

}  // namespace gdnctl::oracle
