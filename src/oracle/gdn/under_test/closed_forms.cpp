// Inputs with a closed-form result.
#include <algorithm>
#include <cmath>

#include "oracle/gdn/under_test/checker.h"

namespace gdnctl::oracle {

// Nothing is written: S_t = e^{c_t} S0, out_t = s S_t^T q_t.
Status Checker::beta_zero() {
    m_l2norm = false;
    GdnProblem p = inputs(33);
    const GdnDims& d = p.dims;
    std::fill(p.beta.begin(), p.beta.end(), 0.0);
    // Strong gates would erase the initial state.
    for (double& g : p.gate) g = std::max(g, -0.5);
    Reals out(p.v.size());
    Reals state = p.initial_state;
    const double scale = 1 / std::sqrt(static_cast<double>(d.dk));
    for (std::int64_t row = 0; row < d.B * d.T; ++row) {
        for (std::int64_t h = 0; h < d.Hv; ++h) {
            const double alpha = std::exp(p.gate[unsign(row * d.Hv + h)]);
            double* S = state.data() + (row / d.T * d.Hv + h) * d.dk * d.dv;
            const double* q = p.q.data() + (row * d.Hk + h / (d.Hv / d.Hk)) * d.dk;
            for (std::int64_t i = 0; i < d.dk * d.dv; ++i) {
                S[i] *= alpha;
                out[unsign((row * d.Hv + h) * d.dv + i % d.dv)] += scale * q[i / d.dv] * S[i];
            }
        }
    }
    GDNCTL_TRY_ASSIGN(const Outcome outcome, run(p));
    if (failed()) return {};
    compare(outcome.out, out, "out, which is s e^c S0^T q");
    compare(outcome.state, state, "final_state, which is e^c S0");
    return {};
}

// Without decay and with beta = 1, the state recalls the last v: S^T k = v.
Status Checker::perfect_fit() {
    m_l2norm = false;
    GdnProblem p = inputs(33);
    const GdnDims& d = p.dims;
    std::fill(p.beta.begin(), p.beta.end(), 1.0);
    std::fill(p.gate.begin(), p.gate.end(), 0.0);
    GDNCTL_TRY_ASSIGN(const Outcome outcome, run(p));
    if (failed()) return {};
    Reals recalled;
    Reals last;
    for (std::int64_t head = 0; head < d.B * d.Hv; ++head) {
        const std::int64_t row = (head / d.Hv + 1) * d.T - 1;
        const std::int64_t h = head % d.Hv;
        for (std::int64_t j = 0; j < d.dv; ++j) {
            double sum = 0;
            for (std::int64_t i = 0; i < d.dk; ++i) {
                sum += outcome.state[unsign((head * d.dk + i) * d.dv + j)] *
                       p.k[unsign((row * d.Hk + h / (d.Hv / d.Hk)) * d.dk + i)];
            }
            recalled.push_back(sum);
            last.push_back(p.v[unsign((row * d.Hv + h) * d.dv + j)]);
        }
    }
    compare(recalled, last, "S^T k after the last token, which is its v");
    return {};
}

// The same key throughout, beta = 1, no decay, no initial state: out_t = s (q_t.k) v_t.
Status Checker::identical_keys() {
    m_l2norm = false;
    GdnProblem p = inputs(33);
    const GdnDims& d = p.dims;
    p.initial_state.clear();
    std::fill(p.beta.begin(), p.beta.end(), 1.0);
    std::fill(p.gate.begin(), p.gate.end(), 0.0);
    // The first unit vector, whose products are exact.
    for (std::size_t i = 0; i < p.k.size(); ++i) p.k[i] = i % unsign(d.dk) == 0 ? 1 : 0;
    Reals out(p.v.size());
    const double scale = 1 / std::sqrt(static_cast<double>(d.dk));
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t head = i / unsign(d.dv);  // of [B*T, Hv]
        const std::size_t key_head = head / unsign(d.Hv) * unsign(d.Hk) + head % unsign(d.Hv) / unsign(d.Hv / d.Hk);
        out[i] = scale * p.q[key_head * unsign(d.dk)] * p.v[i];
    }
    GDNCTL_TRY_ASSIGN(const Outcome outcome, run(p));
    if (failed()) return {};
    compare(outcome.out, out, "out, which is s (q.k) v");
    return {};
}

// Token t has the unit vector t as its key, without an initial state: row t of the state is e^{c_T - c_t} beta_t v_t.
Status Checker::orthonormal_keys() {
    m_l2norm = false;
    GdnProblem p = inputs(16);
    const GdnDims& d = p.dims;
    p.initial_state.clear();
    for (std::size_t i = 0; i < p.k.size(); ++i) {
        const std::size_t t = i / unsign(d.Hk * d.dk) % unsign(d.T);
        p.k[i] = i % unsign(d.dk) == t ? 1 : 0;
    }
    Reals state(unsign(d.B * d.Hv * d.dk * d.dv));
    for (std::int64_t head = 0; head < d.B * d.Hv; ++head) {
        double decay = 0;
        for (std::int64_t t = d.T - 1; t >= 0; --t) {
            const std::int64_t token = (head / d.Hv * d.T + t) * d.Hv + head % d.Hv;
            for (std::int64_t j = 0; j < d.dv; ++j) {
                state[unsign((head * d.dk + t) * d.dv + j)] =
                    std::exp(decay) * p.beta[unsign(token)] * p.v[unsign(token * d.dv + j)];
            }
            decay += p.gate[unsign(token)];
        }
    }
    GDNCTL_TRY_ASSIGN(const Outcome outcome, run(p));
    if (failed()) return {};
    compare(outcome.state, state, "final_state, whose rows are e^(c_T - c_t) beta_t v_t");
    return {};
}

}  // namespace gdnctl::oracle
