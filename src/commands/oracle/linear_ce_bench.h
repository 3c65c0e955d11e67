// gdnctl oracle bench linear-ce
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/oracle/linear_ce.h"
#include "harness/child/process.h"
#include "oracle/simd/isa.h"

namespace gdnctl::commands::linear_ce {

struct BenchSizes {
    std::int64_t batch = 512, hidden = 512, vocab = 128256;
    double soft_cap = 0, logsumexp_weight = 0;
};

// What of `oracle bench` does not depend on the operator.
struct BenchOptions {
    BenchSizes sizes;
    std::optional<std::string> kernel;  // none: builtin:fused
    std::vector<std::string> peers;
    bool bf16 = false;
    std::int64_t seed = 1, threads = 0, rounds = 8, runs = 5;
    oracle::Isa isa = oracle::best_isa();
    harness::Limits limits;
};

void describe_bench(cli::Args& args, BenchSizes& sizes);
Result<ExitCode> bench(const BenchOptions& options, Context& context);

}  // namespace gdnctl::commands::linear_ce
