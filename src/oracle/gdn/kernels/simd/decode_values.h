// How a decode step reads its state, v and out.
#pragma once

#include "oracle/gdn/kernels/simd/decode_task.h"
#include "oracle/simd/stored.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle {
namespace {

// Loads only once. Otherwise the compiler makes the load part of each multiply-add that uses it, and loads per cycle
// are the limit for a state in the second-level cache.
template <int Bytes>
__attribute__((always_inline)) inline typename VectorOf<float, Bytes>::type load_once(const float* from) {
    typename VectorOf<float, Bytes>::type x = load<float, Bytes>(from);
#if defined(__SSE2__)
    __asm__("" : "+v"(x));
#endif
    return x;
}

// The number of lanes in use in a vector that starts at `column`.
template <int Bytes>
inline std::size_t lanes_in_use(const DecodeTask& task, std::size_t column) {
    constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    return column >= task.columns ? 0 : task.columns - column < k_lanes ? task.columns - column : k_lanes;
}

// v of token t; 0 in lanes beyond the columns.
template <int Bytes>
inline typename VectorOf<float, Bytes>::type decode_value(const DecodeTask& task, std::size_t t, std::size_t column) {
    constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    const std::size_t count = lanes_in_use<Bytes>(task, column);
    const std::size_t at = t * task.value_stride + column;
    if (count == k_lanes) return load<Bytes>(task.v, at);
    float padded[k_lanes] = {};
    for (std::size_t j = 0; j < count; ++j) padded[j] = value_at(task.v, at + j);
    return load<float, Bytes>(padded);
}

// out of token t. Nothing is stored for tokens beyond the step's.
template <int Bytes>
inline void write_decoded(const DecodeTask& task, std::size_t t, std::size_t column,
                          typename VectorOf<float, Bytes>::type x) {
    constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    if (t >= task.tokens) return;
    const std::size_t count = lanes_in_use<Bytes>(task, column);
    const std::size_t at = t * task.value_stride + column;
    if (count == k_lanes) return store<Bytes>(task.out, at, x);
    float padded[k_lanes];
    store<float, Bytes>(padded, x);
    for (std::size_t j = 0; j < count; ++j) set_value(task.out, at + j, padded[j]);
}

}  // namespace
}  // namespace gdnctl::oracle
