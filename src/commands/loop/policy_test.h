// gdnctl policy test
#pragma once

#include <string>
#include <vector>

#include "commands/loop/loop_gate_options.h"
#include "platform/context.h"

namespace gdnctl::commands::policy_test {

struct Options {
    loop::PerfOptions perf;
    std::vector<std::string> files;
    std::string metric;
    bool higher = false, lower = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::policy_test
