// The norm of (I + M)^-1, which determines the error of chunked forms that compute this inverse.
#pragma once

#include <cstddef>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

// For each of `lanes` (sequence * Hv + value head), the largest over its chunks, as defined in Condition.
std::vector<double> inverse_norms(const GdnProblem& problem, const GdnContract& contract,
                                  const std::vector<std::size_t>& lanes, int threads);

// Multiplies the budgets of groups by their lane's factor, or by the largest one if groups are not (sequence, value
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
