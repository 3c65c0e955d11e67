// How far limited precision moves a value, and values moved that far: what the budgets measure with.
#pragma once

#include <cstdint>
#include <vector>

#include "gdnctl/oracle/gdn_contract.h"

namespace gdnctl::oracle {

// Unit roundoff of a product's operands.
inline double roundoff_of(Matmul matmul) {
    return matmul == Matmul::f32 ? 0x1p-24 : matmul == Matmul::bf16x3 ? 0x1p-16 : 0x1p-9;
}

// Moves every value by +-amount relative, the signs from a fixed hash of the position that `state` starts.
inline void perturb(std::vector<double>& values, double amount, std::uint64_t state) {
    for (double& x : values) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        x *= (state >> 63U) != 0 ? 1 + amount : 1 - amount;
    }
}

}  // namespace gdnctl::oracle
