// Inputs that look different and mean the same, for kernels that might remember what they were asked before.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "oracle/linear_ce/kernels/passes.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::harness::linear_ce {

// Rows come in another order, and hidden dimensions of x and w with other signs. Logits stay as they are, bit for bit.
class Variation {
public:
    Variation(std::uint64_t seed, std::size_t batch, std::size_t hidden, oracle::linear_ce::Layout layout);

    void apply(std::string_view input, oracle::Tensor& tensor) const;

private:
    void flip(oracle::Tensor& tensor, bool rows) const;

    std::size_t m_batch = 0, m_first = 0;  // the row that comes first
    std::vector<bool> m_negative;          // by hidden dimension
    bool m_hv = true;
};

}  // namespace gdnctl::harness::linear_ce
