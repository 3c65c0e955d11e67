// Which rows and columns a sample holds.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/linear_ce/judge/problem.h"

namespace gdnctl::oracle::linear_ce {

// In ascending order, at most `count`: rows with labels at both ends of the vocabulary, in its last partial block and
// beside the edges of blocks, rows without weight, then random ones.
std::vector<std::size_t> sampled_rows(const Problem& problem, std::size_t count, std::uint64_t seed);

// In ascending order: both ends of the vocabulary and of its last block, the labels of `rows`, then random ones.
std::vector<std::size_t> sampled_columns(const Problem& problem, const std::vector<std::size_t>& rows,
                                         std::size_t count, std::uint64_t seed);

}  // namespace gdnctl::oracle::linear_ce
