// gdnctl policy show
#pragma once

#include "commands/loop/loop_gate_options.h"
#include "platform/context.h"

namespace gdnctl::commands::policy_show {

struct Options {
    loop::PerfOptions perf;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::policy_show
