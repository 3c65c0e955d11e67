// Shared by the parts of the layer: orders of axes, rounding between the parts, and the run that keeps all results.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/layer_inputs/layer_inputs.h"
#include "oracle/tensor/checks.h"
#include "oracle/tensor/random.h"

namespace gdnctl::oracle {

inline std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

// The tensor whose name means `canonical`; nullptr: none; bad_input: two names with this meaning.
Result<const Tensor*> find_layer_tensor(const TensorFile& file, std::string_view canonical);
Status check_layer_heads(const GdnDims& dims);

Shape layer_state_shape(const GdnDims& dims, StateLayout layout);
// Converts the layout of files to [B, Hv, dk, dv].
std::vector<double> from_layout(const std::vector<double>& state, const GdnDims& dims, StateLayout layout);

// Converts between [B*T, Hk, dk], [B*T, Hk, dk], [B*T, Hv, dv] and [B*T, C].
std::vector<double> join_channels(const std::vector<double>& q, const std::vector<double>& k,
                                  const std::vector<double>& v, const GdnDims& dims);
void split_channels(const std::vector<double>& x, const GdnDims& dims, std::vector<double>& q, std::vector<double>& k,
                    std::vector<double>& v);
// Fills x, z, b and a of `layer`, whose dims must be set, from the fused projections; and the reverse.
void split_projections(const std::vector<double>& qkvz, const std::vector<double>& ba, LayerSplit split,
                       GdnLayer& layer);
void join_projections(const GdnLayer& layer, LayerSplit split, std::vector<double>& qkvz, std::vector<double>& ba);

// Simulates limited precision on values that one part passes to the next.
class LayerRounding {
public:
    LayerRounding() = default;  // no rounding
    // Changes each value by one unit roundoff of fp32, up or down, then rounds it to `stored` if that is narrower.
    LayerRounding(DType stored, std::uint64_t seed) : m_stored(stored), m_random(Random(seed, 7)) {}

    void apply(std::vector<double>& values);
    // Changes each value by `size` times a few roundoffs, as a difference of sums of that size would.
    void shake(double& value, double size);
    bool any() const { return m_random.has_value(); }

private:
    DType m_stored = DType::f32;
    std::optional<Random> m_random;
};

using LayerOperator = std::function<GdnOutputs(const GdnProblem&, const GdnContract&)>;
using LayerOperatorAdjoint = std::function<GdnGradients(const GdnProblem&, const GdnContract&, const GdnCotangents&)>;

LayerOutputs run_layer(const GdnLayer& problem, const LayerContract& contract, const LayerOperator& op,
                       LayerRounding rounding);
LayerOperatorAdjoint layer_adjoint64(int threads);
LayerGradients run_layer_adjoint(const GdnLayer& problem, const LayerContract& contract,
                                 const LayerCotangents& cotangents, const LayerOperatorAdjoint& adjoint,
                                 LayerRounding rounding, int threads);

// Adds the convolution's gradients to `result` (of x, weight, bias and state), from the cotangents of conv_out and of
// the last K inputs (empty: 0).
void through_convolution(const GdnLayer& problem, const std::vector<double>& d_conv_out,
                         const std::vector<double>& d_final, LayerGradients& result);

// The input at token t of row b, channel c; t may be as low as 1 - K.
inline double layer_input(const GdnLayer& p, std::int64_t b, std::int64_t t, std::int64_t c) {
    const std::int64_t channels = p.channels();
    if (t >= 0) return p.x[static_cast<std::size_t>((b * p.dims.T + t) * channels + c)];
    return p.conv_state.empty() ? 0 : p.conv_state[static_cast<std::size_t>((b * channels + c) * p.taps + p.taps + t)];
}

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * logistic(x); }
inline double silu_slope(double x) { return logistic(x) * (1 + x * (1 - logistic(x))); }

}  // namespace gdnctl::oracle
