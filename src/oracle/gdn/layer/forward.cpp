#include <algorithm>

#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/layer/layer.h"

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

}  // namespace

double layer_convolution(const GdnLayer& p, std::int64_t b, std::int64_t t, std::int64_t c) {
    double sum = p.conv_bias.empty() ? 0 : p.conv_bias[index(c)];
    for (std::int64_t j = 0; j < p.taps; ++j) {
        sum += p.conv_weight[index(c * p.taps + j)] * layer_input(p, b, t - p.taps + 1 + j, c);
    }
    return sum;
}

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

}  // namespace gdnctl::oracle
