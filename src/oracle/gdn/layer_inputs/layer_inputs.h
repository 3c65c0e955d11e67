// The part of the Gated DeltaNet layer between its projections, in fp64: causal depthwise convolution and SiLU, gates,
// the operator, gated RMSNorm. With C = 2 Hk dk + Hv dv channels [Q|K|V] and a convolution of K taps (axes B, T, ... as
// in contract/problem.h):
//
//     y_t = silu(bias + sum_j w_j x_{t-K+1+j})            q, k, v = y
//     g = -exp(A_log) softplus(a + dt_bias)               beta = sigmoid(b)
//     o = operator(q, k, v, g, beta)                      out = o / sqrt(mean(o^2) + eps) * weight * silu(z)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

enum class LayerSplit { grouped, flat };           // qkvz is [q|k|v|z] for each key head | [Q|K|V|Z] of all heads
enum class LayerGate { after_norm, before_norm };  // norm(o) silu(z) | norm(o silu(z))

struct LayerContract {
    ResolvedContract resolved;  // `value` is the operator's; `fields` are those of both
    double norm_eps = 1e-6;
    LayerSplit split = LayerSplit::grouped;
    LayerGate gate = LayerGate::after_norm;
    bool g_rounded = false;                 // g is rounded to the dtype of the projections
    std::optional<std::int64_t> key_heads;  // if the inputs do not show it
};

std::vector<std::string> layer_contract_names();

// Like resolve_contract, for the contracts of libraries with such a layer. There, gates are raw and beta is a logit.
Result<LayerContract> resolve_layer_contract(std::string_view name, const std::map<std::string, std::string>& metadata,
                                             std::span<const std::string> sets);

struct GdnLayer {
    GdnDims dims;
    std::int64_t taps = 0;                         // K
    std::vector<double> x;                         // [B*T, C], input of the convolution
    std::vector<double> z;                         // [B*T, Hv, dv]
    std::vector<double> a, b;                      // [B*T, Hv]
    std::vector<double> conv_weight;               // [C, K]; the last tap is for the token itself
    std::vector<double> conv_bias;                 // [C]; empty: none
    std::vector<double> A_log;                     // [Hv]
    std::vector<double> dt_bias;                   // [Hv]
    std::vector<double> norm_weight;               // [dv]
    std::vector<double> conv_state;                // [B, C, K], the last inputs before x, oldest first; empty: zeros
    std::vector<double> initial_state;             // [B, Hv, dk, dv]; empty: zeros
    DType dtype = DType::f32;                      // storage dtype of the projections
    bool fused = false;                            // given as qkvz and ba
    Shape fused_shape, gates_shape, weight_shape;  // of qkvz, ba and conv_weight as given

    std::int64_t channels() const { return 2 * dims.Hk * dims.dk + dims.Hv * dims.dv; }
};

// Reads q, k, v, z, b, a separately, or qkvz and ba as the projections give them. Errors: bad_input.
Result<GdnLayer> read_layer(const TensorFile& file, const LayerContract& contract);

// "qkvz" for "mixed_qkvz". Unknown names keep their spelling and have the role unknown.
GdnName layer_name(std::string_view name);

// Random inputs with both states, exact in `dtype`: A_log in U(-3, 2.75), dt_bias 1, four taps, no bias, as in the
// layers of the contracts. The same on every machine.
TensorFile make_layer_inputs(const GdnDims& dims, DType dtype, std::uint64_t seed, const LayerContract& contract);

struct LayerOutputs {
    std::vector<double> conv_out;          // [B*T, C], after SiLU
    std::vector<double> g, beta;           // [B*T, Hv]
    std::vector<double> core_out;          // [B*T, Hv, dv], of the operator
    std::vector<double> out;               // [B*T, Hv, dv]
    std::vector<double> final_conv_state;  // [B, C, K]
    std::vector<double> final_state;       // [B, Hv, dk, dv]
};

LayerOutputs run_layer64(const GdnLayer& layer, const LayerContract& contract, int threads);

// The same, `tokens` at a time, passing on both states as a decoder does: the same bits.
LayerOutputs stream_layer64(const GdnLayer& layer, const LayerContract& contract, std::int64_t tokens, int threads);

struct LayerCotangents {
    std::vector<double> d_out, d_final_conv_state, d_final_state;  // empty: 0
};

struct LayerGradients {
    std::vector<double> x, z, a, b, conv_weight, conv_bias, A_log, dt_bias, norm_weight, conv_state, initial_state;
};

// The adjoint in fp64. Ignores rounding of g, as automatic differentiation does.
LayerGradients run_layer_adjoint64(const GdnLayer& layer, const LayerContract& contract,
                                   const LayerCotangents& cotangents, int threads);

// `d_out`, `d_final_conv_state` and `d_final_state` of a file; nullopt: it has none of them.
Result<std::optional<LayerCotangents>> read_layer_cotangents(const TensorFile& file, const GdnLayer& problem,
                                                             const LayerContract& contract);
LayerCotangents random_layer_cotangents(const GdnLayer& problem, std::uint64_t seed);

TensorFile layer_cotangents_file(const GdnLayer& problem, const LayerContract& contract,
                                 const LayerCotangents& cotangents);
// `out` and the final states; with `parts` also the intermediate results.
TensorFile layer_outputs_file(const GdnLayer& problem, const LayerContract& contract, const LayerOutputs& results,
                              bool parts);
// `d_NAME` for each input, in its given form.
TensorFile layer_gradients_file(const GdnLayer& problem, const LayerContract& contract, const LayerGradients& results);

struct LayerReport {
    Verdict verdict = Verdict::no_data;
    std::string reason;
    std::string stage;  // the first part of the layer that is wrong: conv, gate, beta, core, norm, a state, a gradient
    std::vector<TensorReport> tensors;  // in the order of the computation
    std::optional<Worst> worst;
    std::vector<NotCompared> not_compared;
    std::vector<std::string> unknown;
    std::vector<UnreadTensor> unread;
};

// Judges the outputs, parts and gradients in `dump` (with the cotangents of either file) as compare/compare.h does. The
// budget is the layer's error when each of its parts is rounded to fp32 or to the projections' dtype.
Result<LayerReport> judge_layer(const GdnLayer& layer, const LayerContract& contract, const TensorFile& inputs,
                                const TensorFile& dump, int threads);

}  // namespace gdnctl::oracle
