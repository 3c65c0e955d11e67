// The norm of (I + M)^-1, on which the error of a chunked form depends that forms this inverse.
#pragma once

#include <cstddef>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

// For each of `lanes` (sequence * Hv + value head) the largest over its chunks, as Condition has it.
std::vector<double> inverse_norms(const GdnProblem& problem, const GdnContract& contract,
                                  const std::vector<std::size_t>& lanes, int threads);

// Multiplies the budgets of groups by their lane's factor; where groups are not (sequence, value head), by the largest.
void widen(TensorBudget& budget, const std::vector<double>& widening, bool by_value_head);

// A group of so few elements measures its own budget badly.
inline constexpr std::size_t k_small_group = 256;

struct GroupSize {
    double rms = 0, largest = 0;
    std::size_t count = 0;
};
// Budget / size over the groups in which it is of the usual size: one that has lost everything speaks for no other.
GroupBudget usual_relative(const std::vector<GroupBudget>& budgets, const std::vector<GroupSize>& sizes);

}  // namespace gdnctl::oracle
