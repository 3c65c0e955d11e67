// Sums of gates inside a chunk in 16 bits, as in kernels that keep gates in their given dtype.
#pragma once

#include <span>

#include "oracle/gdn/contract/problem.h"

namespace gdnctl::oracle {

// Sequentially; in blocks of 16 whose sums are then added to the total (XLA on a CPU); or as a tree of pairs.
enum class SumOrder { one_by_one, blocks_of_16, pairs };

// Replaces the log gates of one chunk by differences of their cumulative sums, each rounded to `dtype`.
void sum_gates_in(DType dtype, SumOrder order, std::span<double> gates);

// Whether the contract sums gates in their own dtype and that has 16 bits.
bool sums_narrow(const GdnProblem& problem, const GdnContract& contract);

// The problem with log gates that result from such sums; its contract has g_kind=log.
GdnProblem with_narrow_sums(const GdnProblem& problem, const GdnContract& contract, SumOrder order);

}  // namespace gdnctl::oracle
