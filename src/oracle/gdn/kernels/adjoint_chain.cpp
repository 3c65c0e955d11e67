#include "oracle/gdn/kernels/adjoint_chain.h"

#include <algorithm>
#include <cmath>

#include "oracle/gdn/kernels/prepare.h"

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
    for (std::size_t lane = 0; lane < p.head_lengths.size(); ++lane) {
        const std::size_t n = lane / Hv;
        const std::size_t h = lane % Hv;
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

}  // namespace gdnctl::oracle
