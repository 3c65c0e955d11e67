// gdnctl oracle compare linear-ce
#pragma once

#include <cstdint>

#include "commands/oracle/linear_ce.h"
#include "oracle/linear_ce/judge/compare.h"

namespace gdnctl::commands::linear_ce {

struct CompareOptions {
    Contract contract;
    oracle::linear_ce::Level level = oracle::linear_ce::Level::sampled;
    std::int64_t rows = 32, columns = 64, seed = 1;
};

void describe_compare(cli::Args& args, CompareOptions& options);

}  // namespace gdnctl::commands::linear_ce
