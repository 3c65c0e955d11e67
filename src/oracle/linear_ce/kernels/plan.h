// How large the blocks are. All of it follows from the shape and the tile alone, never from the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "oracle/linear_ce/kernels/packing.h"
#include "oracle/linear_ce/kernels/row_kernel.h"

namespace gdnctl::oracle::linear_ce {

struct Plan {
    std::size_t columns = 0;  // of the vocabulary that one task multiplies: a block
    std::size_t block = 0;    // room for them: whole tiles
    std::size_t window = 0;   // columns between two sums into gx: whole blocks
    std::size_t rows = 0;     // rows at a time: whole tiles
    std::size_t depth = 0;    // factors of a product before its tile is put down
    std::size_t hidden = 0;
    std::size_t height = 0;  // of a tile

    template <class Real>
    Plan(const RowKernel<Real>& kernel, std::size_t batch, std::size_t hidden_size, std::size_t wanted_block,
         bool pairs)
        : depth(k_depth), hidden(hidden_size), height(kernel.height) {
        constexpr std::size_t k_elements = k_scratch / sizeof(Real);
        const std::size_t own = std::clamp(k_elements / 8 / (4 * hidden), std::size_t{1}, k_block);
        columns = wanted_block > 0 ? rounded_up(wanted_block, pairs ? 2 : 1) : rounded_up(own, kernel.width);
        block = rounded_up(columns, kernel.width);
        rows = std::clamp(k_elements / 4 / (2 * hidden + block), std::size_t{1}, k_rows);
        rows = rounded_up(std::min(rows, batch), kernel.height);
        window = std::clamp(k_elements / 3 / (hidden + rows) / block, std::size_t{1}, k_blocks) * columns;
    }

    std::size_t padded_rows() const { return rows; }
    std::size_t panel_size() const { return hidden * block; }

private:
    static constexpr std::size_t k_scratch = std::size_t{48} << 20U;  // bytes, about
    static constexpr std::size_t k_block = 256;
    static constexpr std::size_t k_blocks = 16;  // of a window: a number that threads can share
    static constexpr std::size_t k_rows = 2048;
    static constexpr std::size_t k_depth = 512;
};

}  // namespace gdnctl::oracle::linear_ce
