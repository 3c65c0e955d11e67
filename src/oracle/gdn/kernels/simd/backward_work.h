// Floating-point operations of the backward's phases, for one chunk of one value head (gram: of a key head), as
// executed by its tiles.
#pragma once

#include "oracle/gdn/kernels/simd/backward_data.h"

namespace gdnctl::oracle {
namespace {

template <int Bytes, std::size_t Height>
struct BackwardWork {
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    static constexpr std::size_t k_rows = k_backward_chunk;
    static constexpr std::size_t k_columns = 2 * k_lanes;

    std::size_t dk, dv;

    // Elements of a matrix of pairs on and below the diagonal, in tiles of `width`.
    static constexpr std::size_t pairs(std::size_t width) {
        std::size_t count = 0;
        for (std::size_t i = Height; i <= k_rows; i += Height) count += Height * ((i + width - 1) / width * width);
        return count;
    }
    // Rows that contribute to each column of dQ^T and dK^T in the products over pairs.
    static constexpr std::size_t pair_steps() {
        std::size_t steps = 0;
        for (std::size_t t = 0; t < k_rows; t += k_columns) steps += k_columns * (t + k_lanes) + k_lanes * k_lanes;
        return steps;
    }

    std::size_t gram() const { return 4 * pairs(k_columns) * dk; }
    std::size_t scores() const { return 4 * pairs(k_lanes) * dv; }
    std::size_t trsm() const {
        std::size_t steps = 0;
        for (std::size_t i = 0; i < k_rows; i += Height) steps += dk + 2 * (k_rows - i) - Height + Height / 2;
        return 2 * dv * Height * steps;
    }
    std::size_t product() const { return 2 * k_rows * dk * dv; }
    std::size_t dq() const { return product() + 2 * dk * pair_steps(); }
    std::size_t dk_from_gradient() const { return product() + 2 * dk * (pair_steps() + k_rows * k_rows); }
    std::size_t state() const { return 2 * product() + 2 * dk * dv; }
};

}  // namespace
}  // namespace gdnctl::oracle
