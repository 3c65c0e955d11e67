// What budgets are measured with: the error of limited precision, values perturbed by it, sums of gates, and how
// strongly the inputs amplify errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "oracle/gdn/compare/compare.h"
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

// Sums of gates inside a chunk in 16 bits, as in kernels that keep gates in their given dtype.

// Sequentially; in blocks of 16 whose sums are then added to the total (XLA on a CPU); or as a tree of pairs.
enum class SumOrder { one_by_one, blocks_of_16, pairs };

// Replaces the log gates of one chunk by differences of their cumulative sums, each rounded to `dtype`.
void sum_gates_in(DType dtype, SumOrder order, std::span<double> gates);

// Whether the contract sums gates in their own dtype and that has 16 bits.
bool sums_narrow(const GdnProblem& problem, const GdnContract& contract);

// The problem with log gates that result from such sums; its contract has g_kind=log.
GdnProblem with_narrow_sums(const GdnProblem& problem, const GdnContract& contract, SumOrder order);

// The norm of (I + M)^-1, which determines the error of chunked forms that compute this inverse.

// For each of `heads` (sequence * Hv + value head), the largest over its chunks, as defined in Condition.
std::vector<double> inverse_norms(const GdnProblem& problem, const GdnContract& contract,
                                  const std::vector<std::size_t>& heads, int threads);

// Multiplies the budgets of groups by their head's factor, or by the largest one if groups are not (sequence, value
// head).
void widen(TensorBudget& budget, const std::vector<double>& widening, bool by_value_head);

// Groups with fewer elements measure their own budget poorly.
inline constexpr std::size_t k_small_group = 256;

struct GroupSize {
    double rms = 0, largest = 0;
    std::size_t count = 0;
};
// Budget / size over the groups where it has a typical size, so that one which has lost all precision does not affect
// others.
GroupBudget usual_relative(const std::vector<GroupBudget>& budgets, const std::vector<GroupSize>& sizes);

}  // namespace gdnctl::oracle
