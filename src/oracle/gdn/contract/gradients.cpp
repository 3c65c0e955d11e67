#include "oracle/gdn/contract/gradients.h"

#include <fmt/format.h>

#include "oracle/tensor/random.h"

namespace gdnctl::oracle {

namespace {

constexpr std::uint64_t k_d_out_stream = 101;
constexpr std::uint64_t k_d_state_stream = 102;

std::size_t state_count(const GdnProblem& p) {
    return p.sequences.size() * static_cast<std::size_t>(p.dims.Hv * p.dims.dk * p.dims.dv);
}

Result<std::vector<double>> values_or_zeros(const Tensor* tensor, std::string_view name, const Shape& shape,
                                            std::size_t count) {
    if (tensor == nullptr) return std::vector<double>(count);
    if (tensor->shape != shape || !is_floating(tensor->dtype)) {
        return fail(ErrorKind::bad_input, fmt::format("tensor '{}': expected {} floating, got {} {}", name,
                                                      text_of(shape), text_of(tensor->shape), name_of(tensor->dtype)));
    }
    return to_f64(*tensor);
}

}  // namespace

Status check_gradients(const GdnProblem& p) {
    if (!p.repeated_keys) return {};
    return fail(ErrorKind::bad_input,
                "value heads that share a key head have different lengths: results are judged, gradients are not",
                "give q, k, dq and dk for each value head, as the kernel sees them");
}

Result<std::optional<GdnCotangents>> read_cotangents(const TensorFile& file, const GdnProblem& p,
                                                     const GdnContract& contract) {
    GDNCTL_TRY(check_gradients(p));
    GDNCTL_TRY_ASSIGN(const Tensor* d_out, find_gdn_tensor(file, "d_out"));
    GDNCTL_TRY_ASSIGN(const Tensor* d_state, find_gdn_tensor(file, "d_final_state"));
    if (d_out == nullptr && d_state == nullptr) return std::nullopt;
    GdnCotangents c;
    GDNCTL_TRY_ASSIGN(auto given, values_or_zeros(d_out, "d_out", out_shape(p), p.v.size()));
    c.d_out = from_file_order(p, std::move(given), p.dims.Hv);
    GDNCTL_TRY_ASSIGN(c.d_final_state,
                      values_or_zeros(d_state, "d_final_state", state_shape(p, contract.state_layout), state_count(p)));
    if (contract.state_layout == StateLayout::value_key) {
        GdnDims swapped = p.dims;
        std::swap(swapped.dk, swapped.dv);
        c.d_final_state = to_layout(c.d_final_state, swapped, StateLayout::value_key);
    }
    return c;
}

GdnCotangents random_cotangents(const GdnProblem& p, std::uint64_t seed) {
    const auto filled = [seed](std::size_t count, std::uint64_t stream, double size) {
        Random random(seed, stream);
        std::vector<double> values(count);
        for (double& x : values) x = static_cast<double>(static_cast<float>(size * random.normal()));
        return values;
    };
    return {filled(p.v.size(), k_d_out_stream, 1), filled(state_count(p), k_d_state_stream, 0.1)};
}

bool round_cotangent(GdnCotangents& cotangents, DType out) {
    if (out != DType::bf16 && out != DType::f16) return false;
    bool changed = false;
    for (double& x : cotangents.d_out) {
        const double rounded = rounded_to(x, out);
        changed = changed || rounded != x;
        x = rounded;
    }
    return changed;
}

TensorFile cotangents_file(const GdnProblem& p, const GdnContract& contract, const GdnCotangents& cotangents) {
    TensorFile file =
        outputs_file(p, contract, {cotangents.d_out, cotangents.d_final_state, 0}, DType::f32, DType::f32);
    file.tensors[0].name = "d_out";
    file.tensors[1].name = "d_final_state";
    return file;
}

TensorFile gradients_file(const GdnProblem& p, const GdnContract& contract, const GdnGradients& g, DType wide,
                          DType dtype) {
    TensorFile file;
    const auto add = [&](std::string name, const std::vector<double>& values, Shape shape) {
        file.tensors.push_back({std::move(name), from_f64(values, std::move(shape), dtype)});
    };
    const GdnDims& d = p.dims;
    const auto add_wide = [&](std::string name, const std::vector<double>& values, std::int64_t heads,
                              std::int64_t width) {
        file.tensors.push_back(
            {std::move(name), from_f64(in_file_order(p, values, heads), token_shape(p, {heads, width}), wide)});
    };
    const auto add_gate = [&](std::string name, const std::vector<double>& values) {
        add(std::move(name), in_file_order(p, values, d.Hv), token_shape(p, {d.Hv}));
    };
    add_wide("dq", g.dq, d.Hk, d.dk);
    add_wide("dk", g.dk, d.Hk, d.dk);
    add_wide("dv", g.dv, d.Hv, d.dv);
    add_gate("dg", g.dg);
    add_gate("dbeta", g.dbeta);
    add("d_initial_state", to_layout(g.d_initial_state, d, contract.state_layout),
        state_shape(p, contract.state_layout));
    if (contract.g_kind == GateKind::alpha) add_gate("d_alpha", g.d_gate);
    if (contract.g_kind == GateKind::raw) {
        add_gate("d_a", g.d_gate);
        add("d_A_log", g.dA_log, {d.Hv});
        add("d_dt_bias", g.ddt_bias, {d.Hv});
    }
    if (contract.beta_kind != BetaKind::prob) add_gate("d_b", g.d_logit);
    return file;
}

}  // namespace gdnctl::oracle
