// gdnctl policy simulate
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commands/loop/loop_gate_options.h"
#include "loop/perf/simulation.h"
#include "platform/context.h"

namespace gdnctl::commands::policy_simulate {

struct Options {
    loop::PerfOptions perf;
    std::vector<std::string> noise, gain;
    std::int64_t pairs = 9, trials = 20'000, seed = 1;
    loop::NoiseShape shape = loop::NoiseShape::normal;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::policy_simulate
