// The layer, forward and backward, one part after the other.
#include <algorithm>

#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/layer_inputs/layer_parts.h"

namespace gdnctl::oracle {

namespace {

double roundoff_of(DType dtype) { return dtype == DType::bf16 ? 0x1p-9 : dtype == DType::f16 ? 0x1p-12 : 0x1p-24; }

double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// o / sqrt(mean(o^2) + eps) * weight * silu(z), or with silu(z) before the norm; row by row.
void normalise(const GdnLayer& p, const LayerContract& c, LayerOutputs& r) {
    const std::size_t width = index(p.dims.dv);
    r.out.assign(r.core_out.size(), 0);
    const bool before = c.gate == LayerGate::before_norm;
    for (std::size_t at = 0; at < r.core_out.size(); at += width) {
        double squares = 0;
        for (std::size_t j = 0; j < width; ++j) {
            const double o = r.core_out[at + j] * (before ? silu(p.z[at + j]) : 1);
            squares += o * o;
            r.out[at + j] = o;
        }
        const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + c.norm_eps);
        for (std::size_t j = 0; j < width; ++j) {
            r.out[at + j] *= factor * p.norm_weight[j] * (before ? 1 : silu(p.z[at + j]));
        }
    }
}

// The last K inputs, including those of the previous state if there were fewer tokens.
std::vector<double> last_inputs(const GdnLayer& p) {
    std::vector<double> state;
    state.reserve(index(p.dims.B * p.channels() * p.taps));
    for (std::int64_t b = 0; b < p.dims.B; ++b) {
        for (std::int64_t c = 0; c < p.channels(); ++c) {
            for (std::int64_t j = 0; j < p.taps; ++j) state.push_back(layer_input(p, b, p.dims.T - p.taps + j, c));
        }
    }
    return state;
}

// Tokens first .. first + count of every batch row, from an array with `width` values per token.
std::vector<double> tokens_of(const std::vector<double>& all, const GdnDims& d, std::int64_t first, std::int64_t count,
                              std::int64_t width) {
    std::vector<double> piece;
    piece.reserve(index(d.B * count * width));
    for (std::int64_t b = 0; b < d.B; ++b) {
        const auto from = all.begin() + (b * d.T + first) * width;
        piece.insert(piece.end(), from, from + count * width);
    }
    return piece;
}

void put_tokens(const std::vector<double>& piece, const GdnDims& d, std::int64_t first, std::int64_t count,
                std::int64_t width, std::vector<double>& all) {
    all.resize(index(d.B * d.T * width));
    for (std::int64_t b = 0; b < d.B; ++b) {
        std::copy_n(piece.begin() + b * count * width, count * width, all.begin() + (b * d.T + first) * width);
    }
}

// bias + sum_j w_j x_{t-K+1+j}, before SiLU.
double layer_convolution(const GdnLayer& p, std::int64_t b, std::int64_t t, std::int64_t c) {
    double sum = p.conv_bias.empty() ? 0 : p.conv_bias[index(c)];
    for (std::int64_t j = 0; j < p.taps; ++j) {
        sum += p.conv_weight[index(c * p.taps + j)] * layer_input(p, b, t - p.taps + 1 + j, c);
    }
    return sum;
}

// The operator's contract and inputs inside the layer.
GdnContract operator_contract(const LayerContract& contract) {
    GdnContract op = contract.resolved.value;
    op.g_kind = GateKind::log;
    op.beta_kind = BetaKind::prob;
    return op;
}

GdnProblem operator_problem(const GdnLayer& p, const LayerOutputs& parts) {
    GdnProblem op;
    op.dims = p.dims;
    for (std::int64_t b = 0; b < p.dims.B; ++b) op.sequences.push_back({b * p.dims.T, (b + 1) * p.dims.T});
    split_channels(parts.conv_out, p.dims, op.q, op.k, op.v);
    op.gate = parts.g;
    op.beta = parts.beta;
    op.initial_state = p.initial_state;
    op.qk_dtype = p.dtype;
    return op;
}

}  // namespace

void LayerRounding::apply(std::vector<double>& values) {
    if (!m_random) return;
    for (double& x : values) {
        x *= 1 + ((m_random->bits() & 1U) != 0 ? 0x1p-24 : -0x1p-24);
        if (m_stored != DType::f32 && m_stored != DType::f64) x = rounded_to(x, m_stored);
    }
}

void LayerRounding::shake(double& value, double size) {
    if (m_random) value += size * ((m_random->bits() & 1U) != 0 ? 0x1p-22 : -0x1p-22);
}

LayerOutputs run_layer(const GdnLayer& p, const LayerContract& c, const LayerOperator& op, LayerRounding rounding) {
    const GdnDims& d = p.dims;
    LayerOutputs r;
    r.conv_out.reserve(p.x.size());
    for (std::int64_t b = 0; b < d.B; ++b) {
        for (std::int64_t t = 0; t < d.T; ++t) {
            for (std::int64_t ch = 0; ch < p.channels(); ++ch) {
                r.conv_out.push_back(silu(layer_convolution(p, b, t, ch)));
            }
        }
    }
    rounding.apply(r.conv_out);
    const double factor = c.resolved.value.beta_kind == BetaKind::twice_logit ? 2 : 1;
    for (std::size_t i = 0; i < p.a.size(); ++i) {
        const std::size_t head = i % index(d.Hv);
        const double g = -std::exp(p.A_log[head]) * softplus(p.a[i] + p.dt_bias[head]);
        r.g.push_back(c.g_rounded ? rounded_to(g, p.dtype) : g);
        r.beta.push_back(factor * logistic(p.b[i]));
    }
    // fp32 unless the contract says otherwise; then it may be rounded either way.
    for (double& g : r.g)
        rounding.shake(g, c.g_rounded ? g * roundoff_of(p.dtype) / roundoff_of(DType::f32) / 4 : g / 4);
    rounding.apply(r.beta);
    GdnOutputs core = op(operator_problem(p, r), operator_contract(c));
    r.core_out = std::move(core.out);
    r.final_state = std::move(core.final_state);
    rounding.apply(r.core_out);
    normalise(p, c, r);
    rounding.apply(r.out);
    r.final_conv_state = last_inputs(p);
    return r;
}

LayerOutputs run_layer64(const GdnLayer& layer, const LayerContract& contract, int threads) {
    return run_layer(layer, contract,
                     [threads](const GdnProblem& p, const GdnContract& c) { return run_recurrent64(p, c, threads); },
                     {});
}

LayerOutputs stream_layer64(const GdnLayer& layer, const LayerContract& contract, std::int64_t tokens, int threads) {
    const GdnDims& d = layer.dims;
    LayerOutputs all;
    GdnLayer piece = layer;
    for (std::int64_t first = 0; first < d.T; first += tokens) {
        const std::int64_t count = std::min(tokens, d.T - first);
        const auto part = [&](const std::vector<double>& values, std::int64_t width) {
            return tokens_of(values, d, first, count, width);
        };
        piece.dims.T = count;
        piece.x = part(layer.x, layer.channels());
        piece.z = part(layer.z, d.Hv * d.dv);
        piece.a = part(layer.a, d.Hv);
        piece.b = part(layer.b, d.Hv);
        LayerOutputs r = run_layer64(piece, contract, threads);
        put_tokens(r.conv_out, d, first, count, layer.channels(), all.conv_out);
        put_tokens(r.g, d, first, count, d.Hv, all.g);
        put_tokens(r.beta, d, first, count, d.Hv, all.beta);
        put_tokens(r.core_out, d, first, count, d.Hv * d.dv, all.core_out);
        put_tokens(r.out, d, first, count, d.Hv * d.dv, all.out);
        piece.conv_state = std::move(r.final_conv_state);
        piece.initial_state = std::move(r.final_state);
    }
    if (d.T == 0) return run_layer64(layer, contract, threads);
    all.final_conv_state = std::move(piece.conv_state);
    all.final_state = std::move(piece.initial_state);
    return all;
}

// The layer's adjoint, part by part from the end.

namespace {

// 0 * infinity must not give NaN: if nothing flows back here, nothing flows further.
double chained(double gradient, double factor) { return gradient == 0 ? 0 : gradient * factor; }

// Through the gated norm: d_core, and the gradients of z and the weight. With y the row to normalise, n = y r and r = 1
// / sqrt(mean(y^2) + eps): dy = r (dn - n mean(n dn)).
std::vector<double> through_norm_and_gate(const GdnLayer& p, const LayerContract& c, const LayerOutputs& parts,
                                          const std::vector<double>& d_out, LayerGradients& r) {
    const std::size_t width = index(p.dims.dv);
    const bool before = c.gate == LayerGate::before_norm;
    std::vector<double> d_core(parts.core_out.size());
    r.z.assign(p.z.size(), 0);
    r.norm_weight.assign(width, 0);
    std::vector<double> n(width);
    std::vector<double> dn(width);
    for (std::size_t at = 0; at < d_core.size(); at += width) {
        double squares = 0;
        for (std::size_t j = 0; j < width; ++j) {
            n[j] = parts.core_out[at + j] * (before ? silu(p.z[at + j]) : 1);
            squares += n[j] * n[j];
        }
        const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + c.norm_eps);
        double dot = 0;
        for (std::size_t j = 0; j < width; ++j) {
            n[j] *= factor;
            const double gate = before ? 1 : silu(p.z[at + j]);
            dn[j] = d_out[at + j] * p.norm_weight[j] * gate;
            r.norm_weight[j] += d_out[at + j] * n[j] * gate;
            if (!before) r.z[at + j] = d_out[at + j] * n[j] * p.norm_weight[j] * silu_slope(p.z[at + j]);
            dot += n[j] * dn[j];
        }
        for (std::size_t j = 0; j < width; ++j) {
            const double dy = factor * (dn[j] - n[j] * dot / static_cast<double>(width));
            d_core[at + j] = before ? dy * silu(p.z[at + j]) : dy;
            if (before) r.z[at + j] = dy * parts.core_out[at + j] * silu_slope(p.z[at + j]);
        }
    }
    return d_core;
}

// g = -exp(A_log) softplus(a + dt_bias), beta = factor sigmoid(b).
void through_gates(const GdnLayer& p, const LayerOutputs& parts, const GdnGradients& op, LayerGradients& r) {
    const std::size_t heads = index(p.dims.Hv);
    r.a.assign(p.a.size(), 0);
    r.b.assign(p.b.size(), 0);
    r.A_log.assign(heads, 0);
    r.dt_bias.assign(heads, 0);
    for (std::size_t i = 0; i < r.a.size(); ++i) {
        const std::size_t head = i % heads;
        r.A_log[head] += chained(op.d_gate[i], parts.g[i]);
        r.a[i] = chained(op.d_gate[i], -std::exp(p.A_log[head]) * logistic(p.a[i] + p.dt_bias[head]));
        r.dt_bias[head] += r.a[i];
        r.b[i] = chained(op.dbeta[i], parts.beta[i] * (1 - logistic(p.b[i])));
    }
}

// In chunked forms, dg is a difference of sums as large as dbeta.
void shake_gates(const GdnDims& d, LayerRounding& rounding, GdnGradients& op) {
    if (!rounding.any()) return;
    const std::size_t heads = index(d.Hv);
    std::vector<double> squares(heads, 0);
    for (std::size_t i = 0; i < op.dbeta.size(); ++i) squares[i % heads] += op.dbeta[i] * op.dbeta[i];
    const double count = std::max(1.0, static_cast<double>(d.B * d.T));
    for (std::size_t i = 0; i < op.d_gate.size(); ++i) {
        rounding.shake(op.d_gate[i], std::sqrt(squares[i % heads] / count));
    }
}

}  // namespace

void through_convolution(const GdnLayer& p, const std::vector<double>& d_conv, const std::vector<double>& d_final,
                         LayerGradients& r) {
    const GdnDims& d = p.dims;
    const std::int64_t channels = p.channels();
    r.x.assign(p.x.size(), 0);
    r.conv_state.assign(index(d.B * channels * p.taps), 0);
    r.conv_weight.assign(p.conv_weight.size(), 0);
    r.conv_bias.assign(index(channels), 0);
    const auto add = [&](std::int64_t b, std::int64_t t, std::int64_t c, double gradient) {
        double& to = t >= 0 ? r.x[index((b * d.T + t) * channels + c)]
                            : r.conv_state[index((b * channels + c) * p.taps + p.taps + t)];
        to += gradient;
    };
    for (std::int64_t b = 0; b < d.B; ++b) {
        for (std::int64_t t = 0; t < d.T; ++t) {
            for (std::int64_t c = 0; c < channels; ++c) {
                const double slope = silu_slope(layer_convolution(p, b, t, c));
                const double gradient = chained(d_conv[index((b * d.T + t) * channels + c)], slope);
                r.conv_bias[index(c)] += gradient;
                for (std::int64_t j = 0; j < p.taps; ++j) {
                    const std::int64_t from = t - p.taps + 1 + j;
                    r.conv_weight[index(c * p.taps + j)] += gradient * layer_input(p, b, from, c);
                    add(b, from, c, gradient * p.conv_weight[index(c * p.taps + j)]);
                }
            }
        }
        if (d_final.empty()) continue;
        for (std::int64_t c = 0; c < channels; ++c) {
            for (std::int64_t j = 0; j < p.taps; ++j) {
                add(b, d.T - p.taps + j, c, d_final[index((b * channels + c) * p.taps + j)]);
            }
        }
    }
}

LayerOperatorAdjoint layer_adjoint64(int threads) {
    return [threads](const GdnProblem& p, const GdnContract& c, const GdnCotangents& cotangents) {
        return run_adjoint64(p, c, cotangents, threads);
    };
}

LayerGradients run_layer_adjoint(const GdnLayer& p, const LayerContract& c, const LayerCotangents& cotangents,
                                 const LayerOperatorAdjoint& adjoint, LayerRounding rounding, int threads) {
    const LayerOutputs parts = run_layer(
        p, c, [threads](const GdnProblem& q, const GdnContract& k) { return run_recurrent64(q, k, threads); },
        rounding);
    LayerGradients r;
    std::vector<double> d_out = cotangents.d_out;
    d_out.resize(parts.out.size());
    GdnCotangents inner;
    inner.d_out = through_norm_and_gate(p, c, parts, d_out, r);
    rounding.apply(inner.d_out);
    inner.d_final_state = cotangents.d_final_state;
    GdnGradients op = adjoint(operator_problem(p, parts), operator_contract(c), inner);
    shake_gates(p.dims, rounding, op);
    rounding.apply(op.dbeta);
    through_gates(p, parts, op, r);
    std::vector<double> d_conv = join_channels(op.dq, op.dk, op.dv, p.dims);
    rounding.apply(d_conv);
    through_convolution(p, d_conv, cotangents.d_final_conv_state, r);
    r.initial_state = std::move(op.d_initial_state);
    for (auto* values : {&r.x, &r.z, &r.a, &r.b}) rounding.apply(*values);
    return r;
}

LayerGradients run_layer_adjoint64(const GdnLayer& layer, const LayerContract& contract,
                                   const LayerCotangents& cotangents, int threads) {
    return run_layer_adjoint(layer, contract, cotangents, layer_adjoint64(threads), {}, threads);
}

}  // namespace gdnctl::oracle
