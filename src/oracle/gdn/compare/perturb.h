// The error of limited precision, and values perturbed by it; budgets are measured with these.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/contract/problem.h"

namespace gdnctl::oracle {

inline constexpr double k_fp32_roundoff = 0x1p-24;
// Below this, some processors use denormals and some round to 0.
inline constexpr double k_smallest = static_cast<double>(std::numeric_limits<float>::min());

// Unit roundoff of a product's operands.
inline double roundoff_of(Matmul matmul) {
    switch (matmul) {
        case Matmul::f32: return 0x1p-24;
        case Matmul::bf16x3: return 0x1p-16;
        case Matmul::tf32:
        case Matmul::f16: return 0x1p-12;
        case Matmul::bf16: break;
    }
    return 0x1p-9;
}
// Of the coarsest precision in the contract.
inline double roundoff_of(const GdnContract& c) {
    return c.state_dtype == StateDType::f32 ? roundoff_of(c.matmul) : 0x1p-9;
}

// Changes every value by +-amount relative, with signs from a fixed hash of the position, starting at `state`.
inline void perturb(std::vector<double>& values, double amount, std::uint64_t state) {
    for (double& x : values) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        x *= (state >> 63U) != 0 ? 1 + amount : 1 - amount;
    }
}

// If the contract rounds normalised q and k to 16 bits: in `moved`, which equals `given` or is close to it, moves every
// value that is so near the midpoint of two neighbours that correct fp32 normalisations may round it either way. All of
// them are then rounded the other way.
void cross_roundings(const GdnProblem& given, const GdnContract& contract, GdnProblem& moved);

}  // namespace gdnctl::oracle
