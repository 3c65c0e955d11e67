#include "oracle/kernels/prepare.h"

#include <cmath>

namespace gdnctl::oracle {

namespace {

template <class Real>
std::vector<Real> converted(const std::vector<double>& values) {
    std::vector<Real> result(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) result[i] = static_cast<Real>(values[i]);
    return result;
}

template <class Real>
void normalise_rows(std::vector<Real>& x, std::size_t width, Real eps) {
    for (std::size_t row = 0; row < x.size(); row += width) {
        Real sum = 0;
        for (std::size_t i = 0; i < width; ++i) sum += x[row + i] * x[row + i];
        const Real factor = 1 / std::sqrt(sum + eps);
        for (std::size_t i = 0; i < width; ++i) x[row + i] *= factor;
    }
}

template <class Real>
Real softplus(Real x) {
    return x > 20 ? x : std::log1p(std::exp(x));
}

template <class Real>
Real sigmoid(Real x) {
    return 1 / (1 + std::exp(-x));
}

template <class Real>
void activate_gates(const GdnProblem& p, const GdnContract& c, std::vector<Real>& g) {
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    for (std::size_t i = 0; i < g.size(); ++i) {
        if (c.g_kind == GateKind::alpha) g[i] = std::log(g[i]);
        if (c.g_kind == GateKind::raw) {
            const auto A_log = static_cast<Real>(p.A_log[i % heads]);
            const auto dt_bias = static_cast<Real>(p.dt_bias[i % heads]);
            g[i] = -std::exp(A_log) * softplus(g[i] + dt_bias);
        }
        if (c.exp_clip) {
            const auto limit = static_cast<Real>(*c.exp_clip);
            g[i] = g[i] < -limit ? -limit : g[i] > limit ? limit : g[i];
        }
    }
}

}  // namespace

template <class Real>
Prepared<Real> prepare(const GdnProblem& p, const GdnContract& c) {
    Prepared<Real> r;
    r.problem = &p;
    r.q = converted<Real>(p.q);
    r.k = converted<Real>(p.k);
    r.v = converted<Real>(p.v);
    r.g = converted<Real>(p.gate);
    r.beta = converted<Real>(p.beta);
    if (c.l2norm != L2Norm::off) {
        for (auto* x : {&r.q, &r.k}) {
            normalise_rows(*x, static_cast<std::size_t>(p.dims.dk), static_cast<Real>(c.eps));
            if (c.rounding == NormRounding::input) {
                for (Real& value : *x) value = static_cast<Real>(rounded_to(static_cast<double>(value), p.qk_dtype));
            }
        }
    }
    activate_gates(p, c, r.g);
    if (c.beta_kind != BetaKind::prob) {
        const Real factor = c.beta_kind == BetaKind::twice_logit ? 2 : 1;
        for (Real& b : r.beta) b = factor * sigmoid(b);
    }
    const auto state_size = p.sequences.size() * static_cast<std::size_t>(p.dims.Hv * p.dims.dk * p.dims.dv);
    r.state = p.initial_state.empty() ? std::vector<Real>(state_size) : converted<Real>(p.initial_state);
    for (std::int64_t h = 0; h < p.dims.Hv; ++h) {
        r.key_head.push_back(static_cast<std::size_t>(key_head_of(h, p.dims, c.head_map)));
    }
    r.scale = c.scale ? static_cast<Real>(*c.scale) : 1 / std::sqrt(static_cast<Real>(p.dims.dk));
    return r;
}

std::vector<double> log_gates(const GdnProblem& p, const GdnContract& c) {
    std::vector<double> g = p.gate;
    activate_gates(p, c, g);
    return g;
}

template <class Real>
void apply_empty_policy(const GdnProblem& p, EmptySequence policy, std::vector<Real>& state) {
    if (policy != EmptySequence::zeros) return;
    const auto size = static_cast<std::size_t>(p.dims.Hv * p.dims.dk * p.dims.dv);
    for (std::size_t n = 0; n < p.sequences.size(); ++n) {
        if (p.sequences[n].begin != p.sequences[n].end) continue;
        std::fill_n(state.begin() + static_cast<std::ptrdiff_t>(n * size), size, Real{0});
    }
}

template Prepared<float> prepare(const GdnProblem&, const GdnContract&);
template Prepared<double> prepare(const GdnProblem&, const GdnContract&);
template void apply_empty_policy(const GdnProblem&, EmptySequence, std::vector<float>&);
template void apply_empty_policy(const GdnProblem&, EmptySequence, std::vector<double>&);

}  // namespace gdnctl::oracle
