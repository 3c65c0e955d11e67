#include "oracle/gdn/kernels/prepare.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "oracle/gdn/kernels/kernels.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

template <class Real>
std::vector<Real> converted(const std::vector<double>& values) {
    std::vector<Real> result(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) result[i] = static_cast<Real>(values[i]);
    return result;
}

double sum_of_squares(const double* values, std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += values[i] * values[i];
    return sum;
}

// `values` as Real, normalised and rounded as the contract says; one block of rows per task.
template <class Real>
std::vector<Real> keys_or_queries(const std::vector<double>& values, const GdnProblem& p, const GdnContract& c,
                                  int threads) {
    const auto width = static_cast<std::size_t>(p.dims.dk);
    const std::size_t rows = values.size() / width;
    constexpr std::size_t k_block = 1024;
    std::vector<Real> result(values.size());
    const auto convert = [&](std::size_t row) {
        const double* from = values.data() + row * width;
        Real* to = result.data() + row * width;
        Real sum = 0;
        for (std::size_t i = 0; i < width; ++i) {
            to[i] = static_cast<Real>(from[i]);
            sum += to[i] * to[i];
        }
        if (c.l2norm == L2Norm::off) return;
        const Real factor = 1 / std::sqrt(sum + static_cast<Real>(c.eps));
        // Divides in fp64 if the squared length is outside fp32's range.
        const bool beyond = !(factor > 0 && std::isfinite(factor));
        const double exact = beyond ? std::sqrt(sum_of_squares(from, width) + c.eps) : 0;
        for (std::size_t i = 0; i < width; ++i) {
            to[i] = beyond ? static_cast<Real>(from[i] / exact) : to[i] * factor;
            if (c.rounding == NormRounding::input) {
                to[i] = static_cast<Real>(rounded_to(static_cast<double>(to[i]), p.qk_dtype));
            }
        }
    };
    run_tasks((rows + k_block - 1) / k_block, threads, [&] {
        return [&](std::size_t block) {
            for (std::size_t row = block * k_block; row < std::min(rows, (block + 1) * k_block); ++row) convert(row);
        };
    });
    return result;
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
            const double A_log = p.A_log[i % heads];
            const double dt_bias = p.dt_bias[i % heads];
            g[i] = -std::exp(static_cast<Real>(A_log)) * softplus(g[i] + static_cast<Real>(dt_bias));
            // 0 times infinity in fp32 may be a finite number in fp64.
            if (std::isnan(g[i])) g[i] = static_cast<Real>(-std::exp(A_log) * softplus(p.gate[i] + dt_bias));
        }
        if (c.exp_clip && c.exp_clip->of_gates) g[i] = static_cast<Real>((*c.exp_clip)(static_cast<double>(g[i])));
    }
}

}  // namespace

template <class Real>
Prepared<Real> prepare(const GdnProblem& p, const GdnContract& c, int threads) {
    Prepared<Real> r;
    r.problem = &p;
    r.q = keys_or_queries<Real>(p.q, p, c, threads);
    r.k = keys_or_queries<Real>(p.k, p, c, threads);
    if constexpr (std::is_same_v<Real, double>) {
        r.v = p.v;
    } else {
        r.converted_v = converted<Real>(p.v);
        r.v = r.converted_v;
    }
    r.g = converted<Real>(p.gate);
    r.beta = converted<Real>(p.beta);
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

Storage storage_of(const GdnProblem& problem) { return problem.in_bf16 ? Storage::bf16 : Storage::f32; }

NarrowInputs::NarrowInputs(const GdnProblem& p, const GdnContract& c, const Prepared<float>& prepared)
    : normalised(c.l2norm == L2Norm::off || c.rounding == NormRounding::input) {
    const auto narrow = [](const auto& values, std::vector<Bf16>& to) {
        to.reserve(values.size());
        for (const auto x : values) to.push_back(narrowed(static_cast<float>(x)));
    };
    if (normalised) {
        narrow(prepared.q, q);
        narrow(prepared.k, k);
    } else {
        narrow(p.q, q);
        narrow(p.k, k);
    }
    narrow(p.v, v);
}

void NarrowInputs::place(const GdnContract& c, Forward32& f) const {
    f.q = q.data();
    f.k = k.data();
    f.v = v.data();
    if (!normalised) f.l2norm_eps = static_cast<float>(c.eps);
}

std::vector<double> log_gates(const GdnProblem& p, const GdnContract& c) {
    std::vector<double> g = p.gate;
    activate_gates(p, c, g);
    return g;
}

Forward32 forward_inputs(const GdnProblem& problem, const GdnContract& contract, const Prepared<float>& prepared) {
    Forward32 f;
    f.dims = problem.dims;
    f.sequences = problem.sequences;
    f.head_map = contract.head_map;
    f.q = prepared.q.data();
    f.k = prepared.k.data();
    f.v = prepared.v.data();
    f.g = prepared.g.data();
    f.beta = prepared.beta.data();
    f.initial_state = prepared.state.data();
    f.scale = prepared.scale;
    return f;
}

template <class Real>
void apply_empty_policy(const GdnProblem& p, EmptySequence policy, std::vector<Real>& state) {
    if (policy != EmptySequence::zeros) return;
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const auto size = static_cast<std::size_t>(p.dims.dk * p.dims.dv);
    for (std::size_t head = 0; head < p.sequences.size() * heads; ++head) {
        const GdnSequence s = p.sequences[head / heads];
        if (s.begin != s.end && !p.masks(head / heads, head % heads, s.begin)) continue;
        std::fill_n(state.begin() + static_cast<std::ptrdiff_t>(head * size), size, Real{0});
    }
}

template Prepared<float> prepare(const GdnProblem&, const GdnContract&, int);
template Prepared<double> prepare(const GdnProblem&, const GdnContract&, int);
template void apply_empty_policy(const GdnProblem&, EmptySequence, std::vector<float>&);
template void apply_empty_policy(const GdnProblem&, EmptySequence, std::vector<double>&);

}  // namespace gdnctl::oracle
