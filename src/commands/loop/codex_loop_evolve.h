// codex-loop --mode evolve: checks its options and runs it.
#pragma once

#include "commands/loop/codex_loop.h"

namespace gdnctl::commands::codex_loop {

void describe_evolve(cli::Args& args, Options& options);
// Rejects options that conflict with the mode. Error usage.
Status check_mode(const Options& options);
// `common`: the options that both modes share.
Result<ExitCode> run_evolve_mode(const Options& options, const loop::CodexLoopRequest& common, Context& context);

}  // namespace gdnctl::commands::codex_loop
