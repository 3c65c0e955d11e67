// The options with which --resume continues: those of the run's journal, with new totals and budgets.
#pragma once

#include <vector>

#include "cli/args.h"
#include "commands/loop/codex_loop.h"
#include "core/result.h"
#include "loop/engine/run_words.h"

namespace gdnctl::commands::codex_loop {

// Stores the given options for the journal, except those that belong to a single call (--resume, --dry-run, --log-dir).
void keep_words(const std::vector<cli::GivenOption>& given, loop::RunWords& words);

// The options of the run described by `kept`, continued by a call with the options `now`. Updates `kept` for the next
// call. Errors: usage, naming every option that differs, except those that may change and, of an evolve run, what
// --accept-config-change accepts.
Result<Options> resumed_options(const Options& now, loop::RunWords& kept);

}  // namespace gdnctl::commands::codex_loop
