// The options --validation-*, --perf-* and --hold-dev-tpu of codex-loop.
#pragma once

#include <optional>
#include <string>

#include "cli/args.h"
#include "loop/engine/options.h"
#include "loop/gates/validation_options.h"

namespace gdnctl::commands {

// Describes all of them, and checks the numbers.
void describe_gates(cli::Args& args, loop::GateChoices& choices);

// Only those of the policy: thresholds and the file.
// `evolve`: the command has --mode evolve, which has a default of its own.
void describe_perf_policy(cli::Args& args, loop::PerfOptions& options, bool evolve = false);
// --hold-dev-tpu and related options.
void describe_hold(cli::Args& args, loop::HoldOptions& hold, std::optional<std::string>& allocator);

}  // namespace gdnctl::commands
