// Splits long arrays into blocks for several threads. The blocks are the same for any number of threads, so that sums
// do not depend on it.
#pragma once

#include <algorithm>
#include <cstddef>

namespace gdnctl::oracle {

struct Blocks {
    std::size_t items = 0, size = 1, count = 0;

    // `width`: elements per item. At most 16 blocks, and none too small to be worth starting a thread.
    explicit Blocks(std::size_t all, std::size_t width = 1) : items(all) {
        constexpr std::size_t k_elements = 65536;
        constexpr std::size_t k_most = 16;
        size = std::max({(all + k_most - 1) / k_most, k_elements / std::max<std::size_t>(width, 1), std::size_t{1}});
        count = (all + size - 1) / size;
    }
    std::size_t begin(std::size_t block) const { return block * size; }
    std::size_t end(std::size_t block) const { return std::min(items, (block + 1) * size); }
};

}  // namespace gdnctl::oracle
