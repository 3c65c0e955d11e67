// The layer's results, cotangents, gradients and generated inputs as tensors.
#include <fmt/format.h>

#include "oracle/gdn/layer_inputs/layer_parts.h"

namespace gdnctl::oracle {

namespace {

enum LayerStream : std::uint64_t {
    layer_stream_projections = 201,
    layer_stream_gates,
    layer_stream_weights,
    layer_stream_norm,
    layer_stream_A_log,
    layer_stream_conv_state,
    layer_stream_state,
    layer_stream_cotangents,
};

std::vector<double> normals(std::uint64_t seed, LayerStream stream, std::int64_t count, double scale,
                            double offset = 0) {
    Random random(seed, stream);
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& x : values) x = offset + scale * random.normal();
    return values;
}

Shape per_token(const GdnDims& d, std::initializer_list<std::int64_t> rest) {
    Shape shape = {d.B, d.T};
    shape.insert(shape.end(), rest);
    return shape;
}

Result<std::vector<double>> optional_values(const TensorFile& file, std::string_view name, const Shape& shape) {
    GDNCTL_TRY_ASSIGN(const Tensor* tensor, find_layer_tensor(file, name));
    if (tensor == nullptr) return std::vector<double>();
    return floating_values(*tensor, name, shape);
}

}  // namespace

TensorFile make_layer_inputs(const GdnDims& d, DType dtype, std::uint64_t seed, const LayerContract& contract) {
    TensorFile file;
    const auto add = [&](std::string name, const std::vector<double>& values, Shape shape, DType type) {
        file.tensors.push_back({std::move(name), from_f64(values, std::move(shape), type)});
    };
    constexpr std::int64_t k_taps = 4;
    const std::int64_t width = 2 * d.Hk * d.dk + 2 * d.Hv * d.dv;
    const std::int64_t channels = 2 * d.Hk * d.dk + d.Hv * d.dv;
    add("qkvz", normals(seed, layer_stream_projections, d.B * d.T * width, 1), {d.B, d.T, width}, dtype);
    add("ba", normals(seed, layer_stream_gates, d.B * d.T * 2 * d.Hv, 1), {d.B, d.T, 2 * d.Hv}, dtype);
    add("conv_weight", normals(seed, layer_stream_weights, channels * k_taps, 0.5), {channels, k_taps}, DType::f32);
    Random random(seed, layer_stream_A_log);
    std::vector<double> A_log(static_cast<std::size_t>(d.Hv));
    for (double& x : A_log) x = random.uniform(-3, 2.75);
    add("A_log", A_log, {d.Hv}, DType::f32);
    add("dt_bias", std::vector<double>(A_log.size(), 1), {d.Hv}, DType::f32);
    add("norm_weight", normals(seed, layer_stream_norm, d.dv, 0.1, 1), {d.dv}, DType::f32);
    add("initial_conv_state", normals(seed, layer_stream_conv_state, d.B * channels * k_taps, 1),
        {d.B, channels, k_taps}, dtype);
    add("initial_state", normals(seed, layer_stream_state, d.B * d.Hv * d.dk * d.dv, 0.1),
        layer_state_shape(d, contract.resolved.value.state_layout), DType::f32);
    file.metadata = {{"op", "gdn-layer"}, {"seed", fmt::format("{}", seed)}, {"key_heads", fmt::format("{}", d.Hk)}};
    return file;
}

Result<std::optional<LayerCotangents>> read_layer_cotangents(const TensorFile& file, const GdnLayer& p,
                                                             const LayerContract& c) {
    const GdnDims& d = p.dims;
    const StateLayout layout = c.resolved.value.state_layout;
    LayerCotangents r;
    GDNCTL_TRY_ASSIGN(r.d_out, optional_values(file, "d_out", per_token(d, {d.Hv, d.dv})));
    GDNCTL_TRY_ASSIGN(r.d_final_conv_state, optional_values(file, "d_final_conv_state", {d.B, p.channels(), p.taps}));
    GDNCTL_TRY_ASSIGN(const auto state, optional_values(file, "d_final_state", layer_state_shape(d, layout)));
    r.d_final_state = from_layout(state, d, layout);
    if (r.d_out.empty() && r.d_final_conv_state.empty() && r.d_final_state.empty()) return std::nullopt;
    return r;
}

LayerCotangents random_layer_cotangents(const GdnLayer& p, std::uint64_t seed) {
    const auto filled = [&](std::int64_t count, std::uint64_t variant, double scale) {
        auto values = normals(seed + (variant << 32U), layer_stream_cotangents, count, scale);
        for (double& x : values) x = static_cast<double>(static_cast<float>(x));
        return values;
    };
    const GdnDims& d = p.dims;
    return {filled(d.B * d.T * d.Hv * d.dv, 0, 1), filled(d.B * p.channels() * p.taps, 1, 0.1),
            filled(d.B * d.Hv * d.dk * d.dv, 2, 0.1)};
}

TensorFile layer_cotangents_file(const GdnLayer& p, const LayerContract& c, const LayerCotangents& cotangents) {
    const GdnDims& d = p.dims;
    const StateLayout layout = c.resolved.value.state_layout;
    TensorFile file;
    const auto add = [&](std::string name, const std::vector<double>& values, Shape shape) {
        if (!values.empty()) file.tensors.push_back({std::move(name), from_f64(values, std::move(shape), DType::f32)});
    };
    add("d_out", cotangents.d_out, per_token(d, {d.Hv, d.dv}));
    add("d_final_conv_state", cotangents.d_final_conv_state, {d.B, p.channels(), p.taps});
    add("d_final_state", to_layout(cotangents.d_final_state, d, layout), layer_state_shape(d, layout));
    return file;
}

TensorFile layer_outputs_file(const GdnLayer& p, const LayerContract& c, const LayerOutputs& r, bool parts) {
    const GdnDims& d = p.dims;
    const StateLayout layout = c.resolved.value.state_layout;
    TensorFile file;
    const auto add = [&](std::string name, const std::vector<double>& values, Shape shape) {
        file.tensors.push_back({std::move(name), from_f64(values, std::move(shape), DType::f64)});
    };
    if (parts) {
        add("conv_out", r.conv_out, per_token(d, {p.channels()}));
        add("g", r.g, per_token(d, {d.Hv}));
        add("beta", r.beta, per_token(d, {d.Hv}));
        add("core_out", r.core_out, per_token(d, {d.Hv, d.dv}));
    }
    add("out", r.out, per_token(d, {d.Hv, d.dv}));
    add("final_conv_state", r.final_conv_state, {d.B, p.channels(), p.taps});
    add("final_state", to_layout(r.final_state, d, layout), layer_state_shape(d, layout));
    return file;
}

TensorFile layer_gradients_file(const GdnLayer& p, const LayerContract& c, const LayerGradients& r) {
    const GdnDims& d = p.dims;
    const StateLayout layout = c.resolved.value.state_layout;
    TensorFile file;
    const auto add = [&](std::string name, const std::vector<double>& values, Shape shape) {
        file.tensors.push_back({std::move(name), from_f64(values, std::move(shape), DType::f64)});
    };
    if (p.fused) {
        GdnLayer gradient = p;
        gradient.x = r.x;
        gradient.z = r.z;
        gradient.a = r.a;
        gradient.b = r.b;
        std::vector<double> qkvz;
        std::vector<double> ba;
        join_projections(gradient, c.split, qkvz, ba);
        add("d_qkvz", qkvz, p.fused_shape);
        add("d_ba", ba, p.gates_shape);
    } else {
        std::vector<double> dq;
        std::vector<double> dk;
        std::vector<double> dv;
        split_channels(r.x, d, dq, dk, dv);
        add("dq", dq, per_token(d, {d.Hk, d.dk}));
        add("dk", dk, per_token(d, {d.Hk, d.dk}));
        add("dv", dv, per_token(d, {d.Hv, d.dv}));
        add("dz", r.z, per_token(d, {d.Hv, d.dv}));
        add("d_b", r.b, per_token(d, {d.Hv}));
        add("d_a", r.a, per_token(d, {d.Hv}));
    }
    add("d_conv_weight", r.conv_weight, p.weight_shape);
    if (!p.conv_bias.empty()) add("d_conv_bias", r.conv_bias, {p.channels()});
    add("d_A_log", r.A_log, {d.Hv});
    add("d_dt_bias", r.dt_bias, {d.Hv});
    add("d_norm_weight", r.norm_weight, {d.dv});
    add("d_initial_conv_state", r.conv_state, {d.B, p.channels(), p.taps});
    add("d_initial_state", to_layout(r.initial_state, d, layout), layer_state_shape(d, layout));
    return file;
}

}  // namespace gdnctl::oracle
