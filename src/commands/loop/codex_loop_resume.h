// The options that --resume goes on with: those of the run's journal, with new totals and budgets.
#pragma once

#include <vector>

#include "cli/args.h"
#include "commands/loop/codex_loop.h"
#include "core/result.h"
#include "loop/engine/run_words.h"

namespace gdnctl::commands::codex_loop {

// What was given, for the journal: without the options that belong to a call and not to the run (--resume, --dry-run,
// --log-dir).
void keep_words(const std::vector<cli::GivenOption>& given, loop::RunWords& words);

// The options of the run that `kept` describes, continued by a call with the options `now`. `kept` becomes what the
// next call continues. Errors: usage, naming every option that differs; a total or a budget may.
Result<Options> resumed_options(const Options& now, loop::RunWords& kept);

}  // namespace gdnctl::commands::codex_loop
