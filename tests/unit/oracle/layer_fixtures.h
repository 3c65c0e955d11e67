// Layers to test with.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "oracle/gdn/layer_inputs/layer_inputs.h"

namespace gdnctl::oracle::testing {

inline LayerContract contract_of(std::string_view name, std::vector<std::string> sets = {}) {
    auto contract = resolve_layer_contract(name, {}, sets);
    REQUIRE(contract.has_value());
    return *contract;
}

inline GdnLayer layer_of(const TensorFile& file, const LayerContract& contract) {
    auto layer = read_layer(file, contract);
    if (!layer) FAIL(layer.error().message);
    return *layer;
}

inline constexpr GdnDims k_dims = {2, 11, 2, 4, 3, 5};  // B, T, Hk, Hv, dk, dv

inline TensorFile inputs_file(const LayerContract& contract, DType dtype = DType::f32, GdnDims dims = k_dims) {
    TensorFile file = make_layer_inputs(dims, dtype, 3, contract);
    const std::int64_t channels = 2 * dims.Hk * dims.dk + dims.Hv * dims.dv;
    std::vector<double> bias;
    for (std::int64_t c = 0; c < channels; ++c) bias.push_back(0.1 * std::cos(static_cast<double>(c)));
    file.tensors.push_back({"conv_bias", from_f64(bias, {channels}, DType::f32)});
    return file;
}

inline Tensor& tensor_of(TensorFile& file, std::string_view name) {
    for (NamedTensor& entry : file.tensors) {
        if (entry.name == name) return entry.tensor;
    }
    FAIL("no tensor " << std::string(name));
    return file.tensors.front().tensor;
}

}  // namespace gdnctl::oracle::testing
