// The adjoint of the recurrence in fp64, and the last steps of every backward: the l2norm and the gates as given.
#include "oracle/gdn/kernels/adjoint.h"

#include <algorithm>
#include <cmath>

#include "oracle/gdn/kernels/clipped.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/gdn/kernels/simd/adjoint_panel.h"
#include "oracle/simd/aligned.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// 0 * infinity must not give NaN: if nothing flows back here, nothing flows further.
double chained(double gradient, double factor) { return gradient == 0 ? 0 : gradient * factor; }

// beta = factor sigmoid(b): beta (1 - sigmoid(b)).
void through_beta(const GdnProblem& p, const GdnContract& c, const std::vector<double>& beta, GdnGradients& out) {
    out.d_logit = out.dbeta;
    if (c.beta_kind == BetaKind::prob) return;
    for (std::size_t i = 0; i < out.dbeta.size(); ++i) {
        out.d_logit[i] = chained(out.dbeta[i], beta[i] * (1 - sigmoid(p.beta[i])));
    }
}

// Masked tokens have no influence, not even on their own q, gate or beta, although the gradients at 0 are not 0.
void mask_gradients(const GdnProblem& p, const GdnContract& c, GdnGradients& out) {
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    for (std::size_t sequence_head = 0; sequence_head < p.head_lengths.size(); ++sequence_head) {
        const std::size_t n = sequence_head / Hv;
        const std::size_t h = sequence_head % Hv;
        const auto key = static_cast<std::size_t>(key_head_of(static_cast<std::int64_t>(h), p.dims, c.head_map));
        for (std::int64_t at = p.sequences[n].begin; at < p.sequences[n].end; ++at) {
            if (!p.masks(n, h, at)) continue;
            const auto row = static_cast<std::size_t>(at);
            out.dg[row * Hv + h] = out.dbeta[row * Hv + h] = 0;
            std::fill_n(out.dq.begin() + static_cast<std::ptrdiff_t>((row * Hk + key) * dk), dk, 0.0);
        }
    }
}

}  // namespace

// g = log(alpha), or -exp(A_log) softplus(a + dt_bias), clamped if exp_clip is for gates.
void through_gates(const GdnProblem& p, const GdnContract& c, const std::vector<double>& g, GdnGradients& out) {
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    out.d_gate = out.dg;
    const bool raw = c.g_kind == GateKind::raw;
    if (raw) {
        out.dA_log.assign(heads, 0);
        out.ddt_bias.assign(heads, 0);
    }
    for (std::size_t i = 0; i < out.dg.size(); ++i) {
        double& d = out.d_gate[i];
        if (c.exp_clip && c.exp_clip->of_gates && c.exp_clip->cuts(g[i])) d = 0;
        if (c.g_kind == GateKind::alpha) d = chained(d, 1 / p.gate[i]);
        if (raw) {
            const std::size_t head = i % heads;
            out.dA_log[head] += chained(d, g[i]);
            d = chained(d, -std::exp(p.A_log[head]) * sigmoid(p.gate[i] + p.dt_bias[head]));
            out.ddt_bias[head] += d;
        }
    }
}

std::vector<double> through_norm(const GdnProblem& p, const GdnContract& c, const std::vector<double>& given,
                                 const std::vector<double>& normalised, std::vector<double> gradient,
                                 std::vector<double>* along) {
    if (c.l2norm == L2Norm::off) return gradient;
    const auto width = static_cast<std::size_t>(p.dims.dk);
    if (along != nullptr) along->assign(gradient.size() / width, 0);
    for (std::size_t at = 0; at < gradient.size(); at += width) {
        // Rows outside all sequences may contain anything.
        if (std::all_of(gradient.data() + at, gradient.data() + at + width, [](double x) { return x == 0; })) continue;
        double squares = 0;
        double dot = 0;
        for (std::size_t i = 0; i < width; ++i) {
            squares += given[at + i] * given[at + i];
            dot += normalised[at + i] * gradient[at + i];
        }
        const double factor = 1 / std::sqrt(squares + c.eps);
        if (along != nullptr) (*along)[at / width] = chained(dot, factor);
        for (std::size_t i = 0; i < width; ++i) {
            gradient[at + i] = chained(gradient[at + i] - normalised[at + i] * dot, factor);
        }
    }
    return gradient;
}

void finish_gradients(const GdnProblem& p, const GdnContract& c, const std::vector<double>& g,
                      const std::vector<double>& beta, GdnGradients& gradients) {
    apply_empty_policy(p, c.empty, gradients.d_initial_state);
    mask_gradients(p, c, gradients);
    through_gates(p, c, g, gradients);
    through_beta(p, c, beta, gradients);
}

// The adjoint of the recurrence and of the steps before it. A task is one value head of one sequence: its panels add to
// the same rows of dq and dk, in order.

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
        ClippedHead clipped;
        clipped.q = m_in.q.data() + key;
        clipped.k = m_in.k.data() + key;
        clipped.v = m_in.v.data() + gate * m_dv;
        clipped.g = m_in.g.data() + gate;
        clipped.beta = m_in.beta.data() + gate;
        clipped.key_stride = m_Hk * m_dk;
        clipped.value_stride = m_Hv * m_dv;
        clipped.gate_stride = m_Hv;
        clipped.gradient_stride = m_Hv * m_dk;
        clipped.tokens = static_cast<std::size_t>(sequence.end) - begin;
        clipped.dk = m_dk;
        clipped.dv = m_dv;
        clipped.chunk = static_cast<std::size_t>(m_c.chunk);
        clipped.scale = m_in.scale;
        clipped.clip = *m_c.exp_clip;
        clipped.state = m_in.state.data() + task * m_dk * m_dv;
        clipped.d_out = m_cotangents.d_out.data() + gate * m_dv;
        clipped.d_state = m_out.d_initial_state.data() + task * m_dk * m_dv;
        clipped.dq = m_dq.data() + gate * m_dk;
        clipped.dk_out = m_dk_heads.data() + gate * m_dk;
        clipped.dv_out = m_out.dv.data() + gate * m_dv;
        clipped.dg = m_out.dg.data() + gate;
        clipped.dbeta = m_out.dbeta.data() + gate;
        clipped_backward(clipped);
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
