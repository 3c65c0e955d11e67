// gdnctl oracle run linear-ce
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "commands/oracle/linear_ce.h"

namespace gdnctl::commands::linear_ce {

struct RunOptions {
    std::optional<std::int64_t> batch, hidden, vocab;
    std::optional<std::string> weights;  // "zero-every=K"
};

void describe_run(cli::Args& args, RunOptions& options);

}  // namespace gdnctl::commands::linear_ce
