// oracle run for linear-ce: inputs of a case or of sizes, and the exact results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "oracle/linear_ce/judge/problem.h"
#include "oracle/linear_ce/judge/truth.h"

namespace gdnctl::harness::linear_ce {

// A case, or all three sizes.
struct Generated {
    std::optional<std::string> case_name;
    std::optional<std::int64_t> batch, hidden, vocab;
    std::optional<std::string> weights;  // "zero-every=K"
    std::optional<std::string> layout;   // that w is written in
    std::optional<std::int64_t> seed;
    bool bf16 = false;
};
// Usage errors: no such case, sizes that are missing or too large.
Result<oracle::TensorFile> generate(const Generated& from);

// Adds loss, lse, gx, gw, argmax and what the contract reduces to, in place of those of an earlier run.
void add_results(const oracle::linear_ce::Problem& p, const oracle::linear_ce::Work& work, oracle::TensorFile& file);

}  // namespace gdnctl::harness::linear_ce
