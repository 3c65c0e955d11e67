// gdnctl oracle run linear-ce
#pragma once

#include "commands/oracle/linear_ce.h"
#include "harness/linear_ce/run.h"

namespace gdnctl::commands::linear_ce {

using RunOptions = harness::linear_ce::Generated;

void describe_run(cli::Args& args, RunOptions& options);

}  // namespace gdnctl::commands::linear_ce
