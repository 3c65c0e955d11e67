// gdnctl oracle compare linear-ce
#pragma once

#include <string>
#include <vector>

#include "commands/oracle/linear_ce.h"
#include "oracle/linear_ce/judge/compare.h"

namespace gdnctl::commands::linear_ce {

struct CompareOptions {
    ContractOptions contract;
    oracle::linear_ce::Level level = oracle::linear_ce::Level::sampled;
    std::int64_t rows = 32, columns = 64, seed = 1;
};

// What of `oracle compare` does not depend on the operator.
struct CompareFiles {
    std::vector<std::string> inputs, outputs;
    bool u2_as_bf16 = false, hints = true;
    std::optional<std::string> html;
    std::int64_t threads = 0;
};

void describe_compare(cli::Args& args, CompareOptions& options);
Result<ExitCode> compare(const CompareOptions& options, const CompareFiles& files, Context& context);

}  // namespace gdnctl::commands::linear_ce
