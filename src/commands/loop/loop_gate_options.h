// The options --validation-* and --perf-* of codex-loop.
#pragma once

#include "cli/args.h"
#include "loop/gates/validation_options.h"

namespace gdnctl::commands {

// Records them all, and checks the numbers.
void describe_gates(cli::Args& args, loop::GateChoices& choices);

// Those of the policy alone: thresholds and the file.
void describe_perf_policy(cli::Args& args, loop::PerfOptions& options);

}  // namespace gdnctl::commands
