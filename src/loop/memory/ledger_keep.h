// Collects the facts of an iteration for its record, and adds a finished iteration to the ledger.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "core/result.h"
#include "loop/engine/journal.h"
#include "loop/memory/ledger.h"
#include "loop/report/report.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

struct KnownIteration {
    std::span<const Record> own;  // the iteration's records among the run's
    IterationView view;           // its base is the candidate's, even if the loop followed a branch that had moved
    LedgerFacts facts;
    std::shared_ptr<const MeasuredRun> measured;  // `facts` points into it
};
// Takes commits, files and the patch from the range between base and head in `repository`, and the agent's report and
// the measurements from the log directory. `records`: of the run. nullopt: no such iteration. Errors: those of git; an
// unusable report is not an error.
Result<std::optional<KnownIteration>> known_iteration(const std::filesystem::path& log_dir,
                                                      const GitCheckout& repository, std::span<const Record> records,
                                                      int iteration);

// Call this once the iteration has its `iteration_end`; repeating it after a kill is harmless. Errors: those of
// append_ledger() and known_iteration().
Status keep_in_ledger(const std::filesystem::path& log_dir, const GitCheckout& repository,
                      std::span<const Record> records, int iteration);

}  // namespace gdnctl::loop
