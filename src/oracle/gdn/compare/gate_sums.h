// Gates summed inside a chunk in 16 bits, as kernels do that leave them in the dtype they were given in.
#pragma once

#include <span>

#include "oracle/gdn/contract/problem.h"

namespace gdnctl::oracle {

// One after the other; each 16 by themselves and then onto the sum of those before (XLA on a CPU); by a tree of pairs.
enum class SumOrder { one_by_one, blocks_of_16, pairs };

// Replaces the log gates of one chunk by differences of their sums, each of which is rounded to `dtype`.
void sum_gates_in(DType dtype, SumOrder order, std::span<double> gates);

// Whether the contract has gates summed in their own dtype and that has 16 bits.
bool sums_narrow(const GdnProblem& problem, const GdnContract& contract);

// The problem with log gates as they come from such sums; its contract has g_kind=log.
GdnProblem with_narrow_sums(const GdnProblem& problem, const GdnContract& contract, SumOrder order);

}  // namespace gdnctl::oracle
