// An iteration that has ended goes into the ledger.
#pragma once

#include <filesystem>
#include <span>

#include "gdnctl/core/result.h"
#include "gdnctl/services/git_checkout.h"
#include "loop/journal.h"

namespace gdnctl::loop {

// To be called once the iteration has its `iteration_end`; again after a kill, at no harm. `records`: of the run.
// Commits, files and the patch are those between its base and its head in `repository`; the agent's report and what was
// measured come from the log directory. Errors: those of append_ledger() and of git; what the agent handed in is never
// one.
Status keep_in_ledger(const std::filesystem::path& log_dir, const GitCheckout& repository,
                      std::span<const Record> records, int iteration);

}  // namespace gdnctl::loop
