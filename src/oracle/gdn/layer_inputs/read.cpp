// Reads a layer's tensors: orders of axes, how projections are split, and the layout of states in files.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "oracle/gdn/layer_inputs/layer_inputs.h"
#include "oracle/gdn/layer_inputs/layer_parts.h"

namespace gdnctl::oracle {

namespace {

// Calls visit(offset in the row, part, offset in the part's row, count) for each run of a row of qkvz; parts are q, k,
// v, z.
template <class Visit>
void runs_of_projections(const GdnDims& d, LayerSplit split, Visit visit) {
    const std::size_t sizes[] = {index(d.dk), index(d.dk), index(d.Hv / d.Hk * d.dv), index(d.Hv / d.Hk * d.dv)};
    const auto heads = index(d.Hk);
    std::size_t from = 0;
    if (split == LayerSplit::flat) {
        for (std::size_t part = 0; part < 4; ++part) {
            visit(from, part, std::size_t{0}, heads * sizes[part]);
            from += heads * sizes[part];
        }
        return;
    }
    for (std::size_t head = 0; head < heads; ++head) {
        for (std::size_t part = 0; part < 4; ++part) {
            visit(from, part, head * sizes[part], sizes[part]);
            from += sizes[part];
        }
    }
}

// The same for ba: parts are b and a.
template <class Visit>
void runs_of_gates(const GdnDims& d, LayerSplit split, Visit visit) {
    const std::size_t groups = split == LayerSplit::flat ? 1 : index(d.Hk);
    const std::size_t size = index(d.Hv) / groups;
    for (std::size_t group = 0; group < groups; ++group) {
        visit(2 * group * size, std::size_t{0}, group * size, size);
        visit((2 * group + 1) * size, std::size_t{1}, group * size, size);
    }
}

void copy(const std::vector<double>& from, std::size_t at, std::vector<double>& to, std::size_t to_at,
          std::size_t count) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), count, to.begin() + static_cast<std::ptrdiff_t>(to_at));
}

}  // namespace

Shape layer_state_shape(const GdnDims& d, StateLayout layout) {
    return layout == StateLayout::key_value ? Shape{d.B, d.Hv, d.dk, d.dv} : Shape{d.B, d.Hv, d.dv, d.dk};
}

std::vector<double> from_layout(const std::vector<double>& state, const GdnDims& dims, StateLayout layout) {
    GdnDims swapped = dims;
    if (layout == StateLayout::value_key) std::swap(swapped.dk, swapped.dv);
    return to_layout(state, swapped, layout);
}

std::vector<double> join_channels(const std::vector<double>& q, const std::vector<double>& k,
                                  const std::vector<double>& v, const GdnDims& d) {
    const std::size_t keys = index(d.Hk * d.dk);
    const std::size_t values = index(d.Hv * d.dv);
    const std::size_t width = 2 * keys + values;
    std::vector<double> x(index(d.B * d.T) * width);
    for (std::size_t row = 0; row < index(d.B * d.T); ++row) {
        copy(q, row * keys, x, row * width, keys);
        copy(k, row * keys, x, row * width + keys, keys);
        copy(v, row * values, x, row * width + 2 * keys, values);
    }
    return x;
}

void split_channels(const std::vector<double>& x, const GdnDims& d, std::vector<double>& q, std::vector<double>& k,
                    std::vector<double>& v) {
    const std::size_t keys = index(d.Hk * d.dk);
    const std::size_t values = index(d.Hv * d.dv);
    const std::size_t width = 2 * keys + values;
    const std::size_t rows = index(d.B * d.T);
    q.assign(rows * keys, 0);
    k.assign(rows * keys, 0);
    v.assign(rows * values, 0);
    for (std::size_t row = 0; row < rows; ++row) {
        copy(x, row * width, q, row * keys, keys);
        copy(x, row * width + keys, k, row * keys, keys);
        copy(x, row * width + 2 * keys, v, row * values, values);
    }
}

void split_projections(const std::vector<double>& qkvz, const std::vector<double>& ba, LayerSplit split,
                       GdnLayer& layer) {
    const GdnDims& d = layer.dims;
    const std::size_t rows = index(d.B * d.T);
    const std::size_t widths[] = {index(d.Hk * d.dk), index(d.Hk * d.dk), index(d.Hv * d.dv), index(d.Hv * d.dv)};
    const std::size_t width = widths[0] + widths[1] + widths[2] + widths[3];
    std::vector<double> parts[4];
    for (std::size_t part = 0; part < 4; ++part) parts[part].assign(rows * widths[part], 0);
    layer.b.assign(rows * index(d.Hv), 0);
    layer.a.assign(rows * index(d.Hv), 0);
    for (std::size_t row = 0; row < rows; ++row) {
        runs_of_projections(d, split, [&](std::size_t from, std::size_t part, std::size_t to, std::size_t count) {
            copy(qkvz, row * width + from, parts[part], row * widths[part] + to, count);
        });
        runs_of_gates(d, split, [&](std::size_t from, std::size_t part, std::size_t to, std::size_t count) {
            copy(ba, row * 2 * index(d.Hv) + from, part == 0 ? layer.b : layer.a, row * index(d.Hv) + to, count);
        });
    }
    layer.x = join_channels(parts[0], parts[1], parts[2], d);
    layer.z = std::move(parts[3]);
}

void join_projections(const GdnLayer& layer, LayerSplit split, std::vector<double>& qkvz, std::vector<double>& ba) {
    const GdnDims& d = layer.dims;
    const std::size_t rows = index(d.B * d.T);
    const std::size_t widths[] = {index(d.Hk * d.dk), index(d.Hk * d.dk), index(d.Hv * d.dv), index(d.Hv * d.dv)};
    const std::size_t width = widths[0] + widths[1] + widths[2] + widths[3];
    std::vector<double> parts[4];
    split_channels(layer.x, d, parts[0], parts[1], parts[2]);
    parts[3] = layer.z;
    qkvz.assign(rows * width, 0);
    ba.assign(rows * 2 * index(d.Hv), 0);
    for (std::size_t row = 0; row < rows; ++row) {
        runs_of_projections(d, split, [&](std::size_t to, std::size_t part, std::size_t from, std::size_t count) {
            copy(parts[part], row * widths[part] + from, qkvz, row * width + to, count);
        });
        runs_of_gates(d, split, [&](std::size_t to, std::size_t part, std::size_t from, std::size_t count) {
            copy(part == 0 ? layer.b : layer.a, row * index(d.Hv) + from, ba, row * 2 * index(d.Hv) + to, count);
        });
    }
}

// Reads the layer's tensors from a file.

namespace {

struct NameRow {
    std::string_view name;
    std::string_view canonical;
    GdnRole role;
};

constexpr NameRow k_names[] = {
    {"qkvz", "qkvz", GdnRole::input},
    {"mixed_qkvz", "qkvz", GdnRole::input},
    {"projected_states_qkvz", "qkvz", GdnRole::input},
    {"ba", "ba", GdnRole::input},
    {"mixed_ba", "ba", GdnRole::input},
    {"projected_states_ba", "ba", GdnRole::input},
    {"q", "q", GdnRole::input},
    {"query", "q", GdnRole::input},
    {"k", "k", GdnRole::input},
    {"key", "k", GdnRole::input},
    {"v", "v", GdnRole::input},
    {"value", "v", GdnRole::input},
    {"z", "z", GdnRole::input},
    {"a", "a", GdnRole::input},
    {"b", "b", GdnRole::input},
    {"conv_weight", "conv_weight", GdnRole::input},
    {"conv1d.weight", "conv_weight", GdnRole::input},
    {"conv_bias", "conv_bias", GdnRole::input},
    {"conv1d.bias", "conv_bias", GdnRole::input},
    {"A_log", "A_log", GdnRole::input},
    {"dt_bias", "dt_bias", GdnRole::input},
    {"norm_weight", "norm_weight", GdnRole::input},
    {"norm.weight", "norm_weight", GdnRole::input},
    {"o_norm.weight", "norm_weight", GdnRole::input},
    {"initial_conv_state", "initial_conv_state", GdnRole::input},
    {"conv_state", "initial_conv_state", GdnRole::input},
    {"initial_state", "initial_state", GdnRole::input},
    {"state", "initial_state", GdnRole::input},
    {"recurrent_state", "initial_state", GdnRole::input},
    {"conv_out", "conv_out", GdnRole::output},
    {"g", "g", GdnRole::output},
    {"beta", "beta", GdnRole::output},
    {"core_out", "core_out", GdnRole::output},
    {"core_attn_out", "core_out", GdnRole::output},
    {"out", "out", GdnRole::output},
    {"output", "out", GdnRole::output},
    {"final_conv_state", "final_conv_state", GdnRole::output},
    {"new_conv_state", "final_conv_state", GdnRole::output},
    {"final_state", "final_state", GdnRole::output},
    {"new_state", "final_state", GdnRole::output},
    {"d_out", "d_out", GdnRole::cotangent},
    {"d_final_conv_state", "d_final_conv_state", GdnRole::cotangent},
    {"d_final_state", "d_final_state", GdnRole::cotangent},
    {"d_qkvz", "d_qkvz", GdnRole::gradient},
    {"d_ba", "d_ba", GdnRole::gradient},
    {"dq", "dq", GdnRole::gradient},
    {"dk", "dk", GdnRole::gradient},
    {"dv", "dv", GdnRole::gradient},
    {"dz", "dz", GdnRole::gradient},
    {"d_b", "d_b", GdnRole::gradient},
    {"d_a", "d_a", GdnRole::gradient},
    {"d_conv_weight", "d_conv_weight", GdnRole::gradient},
    {"d_conv_bias", "d_conv_bias", GdnRole::gradient},
    {"d_A_log", "d_A_log", GdnRole::gradient},
    {"d_dt_bias", "d_dt_bias", GdnRole::gradient},
    {"d_norm_weight", "d_norm_weight", GdnRole::gradient},
    {"d_initial_conv_state", "d_initial_conv_state", GdnRole::gradient},
    {"d_initial_state", "d_initial_state", GdnRole::gradient},
};

Result<const Tensor*> required(const TensorFile& file, std::string_view name, std::string_view hint = {}) {
    GDNCTL_TRY_ASSIGN(const Tensor* tensor, find_layer_tensor(file, name));
    if (tensor != nullptr) return tensor;
    return fail(ErrorKind::bad_input, fmt::format("tensor '{}' is missing from the inputs", name), std::string(hint));
}

Result<std::vector<double>> required_values(const TensorFile& file, std::string_view name, const Shape& shape) {
    GDNCTL_TRY_ASSIGN(const Tensor* tensor, required(file, name));
    return floating_values(*tensor, name, shape);
}

// The size of a one-axis parameter.
Result<std::int64_t> length_of(const TensorFile& file, std::string_view name) {
    GDNCTL_TRY_ASSIGN(const Tensor* tensor, required(file, name));
    if (tensor->shape.size() != 1 || tensor->shape[0] < 1) return wrong_tensor(name, "one axis", *tensor);
    return tensor->shape[0];
}

// [C, K], or [C, 1, K] as for a convolution in PyTorch.
Status read_weight(const TensorFile& file, GdnLayer& p) {
    GDNCTL_TRY_ASSIGN(const Tensor* weight, required(file, "conv_weight"));
    const Shape& s = weight->shape;
    const bool torch = s.size() == 3 && s[1] == 1;
    if ((s.size() != 2 && !torch) || s.back() < 1) return wrong_tensor("conv_weight", "[C,K] or [C,1,K]", *weight);
    p.taps = s.back();
    p.weight_shape = s;
    GDNCTL_TRY_ASSIGN(p.conv_weight, floating_values(*weight, "conv_weight", s));
    return {};
}

// The number of key heads, which qkvz alone does not show.
Result<std::int64_t> key_heads_of(const TensorFile& file, const LayerContract& contract, const Tensor& qkvz,
                                  std::int64_t key_width) {
    if (qkvz.shape.size() == 4) return qkvz.shape[2];
    if (contract.key_heads) return *contract.key_heads;
    GDNCTL_TRY_ASSIGN(const Tensor* state, find_layer_tensor(file, "initial_state"));
    if (state != nullptr) {
        if (state->shape.size() != 4) return wrong_tensor("initial_state", "[B,Hv,dk,dv]", *state);
        const bool key_value = contract.resolved.value.state_layout == StateLayout::key_value;
        const std::int64_t dk = state->shape[key_value ? 2 : 3];
        if (dk > 0 && key_width % dk == 0) return key_width / dk;
    }
    return fail(ErrorKind::bad_input, "the number of key heads is unknown: qkvz does not determine it",
                "--set key_heads=N, or give qkvz as [B,T,Hk,...]");
}

// Dims of fused projections, from the sizes of the parameters.
Status read_fused_dims(const TensorFile& file, const LayerContract& contract, const Tensor& qkvz, GdnLayer& p) {
    GdnDims& d = p.dims;
    GDNCTL_TRY_ASSIGN(d.Hv, length_of(file, "A_log"));
    GDNCTL_TRY_ASSIGN(d.dv, length_of(file, "norm_weight"));
    const Shape& s = qkvz.shape;
    if (s.size() != 3 && s.size() != 4) return wrong_tensor("qkvz", "[B,T,2 Hk dk + 2 Hv dv]", qkvz);
    if (s.size() == 4 && contract.split == LayerSplit::flat) {
        return wrong_tensor("qkvz", "[B,T,2 Hk dk + 2 Hv dv], because split=flat", qkvz);
    }
    d.B = s[0];
    d.T = s[1];
    const std::int64_t key_width = (p.weight_shape[0] - d.Hv * d.dv) / 2;
    if (key_width < 1 || p.weight_shape[0] != 2 * key_width + d.Hv * d.dv) {
        return fail(
            ErrorKind::bad_input,
            fmt::format("conv_weight has {} channels: not 2 Hk dk + Hv dv, with Hv = {} of A_log and dv = {} of "
                        "norm_weight",
                        p.weight_shape[0], d.Hv, d.dv));
    }
    GDNCTL_TRY_ASSIGN(d.Hk, key_heads_of(file, contract, qkvz, key_width));
    if (d.Hk < 1 || key_width % d.Hk != 0) {
        return fail(ErrorKind::bad_input, fmt::format("{} channels of q cannot be {} key heads", key_width, d.Hk));
    }
    d.dk = key_width / d.Hk;
    return {};
}

Status read_fused(const TensorFile& file, const LayerContract& contract, const Tensor& qkvz, GdnLayer& p) {
    GDNCTL_TRY(read_fused_dims(file, contract, qkvz, p));
    GDNCTL_TRY(check_layer_heads(p.dims));
    const GdnDims& d = p.dims;
    p.fused = true;
    p.fused_shape = qkvz.shape;
    p.dtype = qkvz.dtype;
    const std::int64_t width = 2 * d.Hk * d.dk + 2 * d.Hv * d.dv;
    Shape expected = {d.B, d.T, width};
    if (qkvz.shape.size() == 4) expected = {d.B, d.T, d.Hk, width / d.Hk};
    GDNCTL_TRY_ASSIGN(const auto mixed, floating_values(qkvz, "qkvz", expected));
    GDNCTL_TRY_ASSIGN(const Tensor* ba, required(file, "ba"));
    const bool by_head = ba->shape.size() == 4 && contract.split == LayerSplit::grouped;
    GDNCTL_TRY_ASSIGN(
        const auto gates,
        floating_values(*ba, "ba", by_head ? Shape{d.B, d.T, d.Hk, 2 * d.Hv / d.Hk} : Shape{d.B, d.T, 2 * d.Hv}));
    p.gates_shape = ba->shape;
    split_projections(mixed, gates, contract.split, p);
    return {};
}

Status read_apart(const TensorFile& file, const Tensor& q, GdnLayer& p) {
    GDNCTL_TRY_ASSIGN(const Tensor* v, required(file, "v"));
    if (q.shape.size() != 4) return wrong_tensor("q", "[B,T,Hk,dk]", q);
    if (v->shape.size() != 4) return wrong_tensor("v", "[B,T,Hv,dv]", *v);
    p.dims = {q.shape[0], q.shape[1], q.shape[2], v->shape[2], q.shape[3], v->shape[3]};
    GDNCTL_TRY(check_layer_heads(p.dims));
    const GdnDims& d = p.dims;
    p.dtype = q.dtype;
    const Shape key_shape = {d.B, d.T, d.Hk, d.dk};
    const Shape value_shape = {d.B, d.T, d.Hv, d.dv};
    GDNCTL_TRY_ASSIGN(const auto query, floating_values(q, "q", key_shape));
    GDNCTL_TRY_ASSIGN(const auto key, required_values(file, "k", key_shape));
    GDNCTL_TRY_ASSIGN(const auto value, floating_values(*v, "v", value_shape));
    GDNCTL_TRY_ASSIGN(p.z, required_values(file, "z", value_shape));
    GDNCTL_TRY_ASSIGN(p.b, required_values(file, "b", {d.B, d.T, d.Hv}));
    GDNCTL_TRY_ASSIGN(p.a, required_values(file, "a", {d.B, d.T, d.Hv}));
    p.x = join_channels(query, key, value, d);
    return {};
}

// Parameters and states, once the dims are known.
Status read_rest(const TensorFile& file, const LayerContract& contract, GdnLayer& p) {
    const GdnDims& d = p.dims;
    if (p.weight_shape[0] != p.channels()) {
        return fail(ErrorKind::bad_input, fmt::format("tensor 'conv_weight': expected {} channels (2 Hk dk + Hv dv), "
                                                      "got {}",
                                                      p.channels(), text_of(p.weight_shape)));
    }
    GDNCTL_TRY_ASSIGN(p.A_log, required_values(file, "A_log", {d.Hv}));
    GDNCTL_TRY_ASSIGN(p.dt_bias, required_values(file, "dt_bias", {d.Hv}));
    GDNCTL_TRY_ASSIGN(p.norm_weight, required_values(file, "norm_weight", {d.dv}));
    GDNCTL_TRY_ASSIGN(const Tensor* bias, find_layer_tensor(file, "conv_bias"));
    if (bias != nullptr) {
        GDNCTL_TRY_ASSIGN(p.conv_bias, floating_values(*bias, "conv_bias", {p.channels()}));
    }
    GDNCTL_TRY_ASSIGN(const Tensor* conv, find_layer_tensor(file, "initial_conv_state"));
    if (conv != nullptr) {
        GDNCTL_TRY_ASSIGN(p.conv_state, floating_values(*conv, "initial_conv_state", {d.B, p.channels(), p.taps}));
    }
    GDNCTL_TRY_ASSIGN(const Tensor* state, find_layer_tensor(file, "initial_state"));
    if (state != nullptr) {
        const StateLayout layout = contract.resolved.value.state_layout;
        GDNCTL_TRY_ASSIGN(const auto values, floating_values(*state, "initial_state", layer_state_shape(d, layout)));
        p.initial_state = from_layout(values, d, layout);
    }
    return {};
}

}  // namespace

GdnName layer_name(std::string_view name) {
    for (const NameRow& row : k_names) {
        if (row.name == name) return {row.canonical, row.role};
    }
    return {name, GdnRole::unknown};
}

Result<const Tensor*> find_layer_tensor(const TensorFile& file, std::string_view canonical) {
    return find_gdn_tensor(file, canonical, layer_name);
}

Status check_layer_heads(const GdnDims& d) {
    if (d.Hk < 1 || d.Hv < 1 || d.dk < 1 || d.dv < 1) {
        return fail(ErrorKind::bad_input, "heads and head dimensions must not be 0");
    }
    if (d.Hv % d.Hk != 0) {
        return fail(ErrorKind::bad_input, fmt::format("v's {} heads are not a multiple of q's {}", d.Hv, d.Hk));
    }
    if (d.B < 0 || d.T < 0 || !memory_estimate(d, std::max<std::int64_t>(d.B, 1))) {
        return fail(ErrorKind::bad_input, "these tensors are too large");
    }
    return {};
}

Result<GdnLayer> read_layer(const TensorFile& file, const LayerContract& contract) {
    GdnLayer p;
    for (const std::string_view name : {"cu_seqlens", "lengths", "offsets"}) {
        if (!file.any_name([&](std::string_view other) { return other == name; })) continue;
        return fail(ErrorKind::bad_input, fmt::format("tensor '{}': the layer takes whole batch rows", name),
                    "give each sequence its own batch row or file");
    }
    GDNCTL_TRY(read_weight(file, p));
    GDNCTL_TRY_ASSIGN(const Tensor* qkvz, find_layer_tensor(file, "qkvz"));
    GDNCTL_TRY_ASSIGN(const Tensor* q, find_layer_tensor(file, "q"));
    if (qkvz != nullptr && q != nullptr) {
        return fail(ErrorKind::bad_input, "the projections are given twice, as qkvz and as q",
                    "keep qkvz and ba, or q, k, v, z, b and a");
    }
    if (qkvz != nullptr) {
        GDNCTL_TRY(read_fused(file, contract, *qkvz, p));
    } else if (q != nullptr) {
        GDNCTL_TRY(read_apart(file, *q, p));
    } else {
        return fail(ErrorKind::bad_input, "tensor 'qkvz' is missing from the inputs",
                    "give qkvz and ba, or q, k, v, z, b and a");
    }
    GDNCTL_TRY(read_rest(file, contract, p));
    return p;
}

}  // namespace gdnctl::oracle
