// codex-loop --mode evolve: its options, and a run with them.
#pragma once

#include "commands/loop/codex_loop.h"

namespace gdnctl::commands::codex_loop {

void describe_evolve(cli::Args& args, Options& options);
// Rejects options that conflict with the mode. Error usage.
Status check_mode(const Options& options);
// `common`: shared by both modes.
Result<ExitCode> run_evolve_mode(const Options& options, const loop::CodexLoopRequest& common, Context& context);

}  // namespace gdnctl::commands::codex_loop
