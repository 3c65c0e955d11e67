// What is known of an iteration for its record, and the ledger that an iteration which has ended goes into.
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
    std::span<const Record> own;  // records of the iteration, in the run's
    IterationView view;           // its base is that of the candidate: a branch that had moved is followed
    LedgerFacts facts;
    std::shared_ptr<const MeasuredRun> measured;  // that `facts` points to
};
// Commits, files and the patch are those between its base and its head in `repository`; the agent's report and what was
// measured come from the log directory. `records`: of the run. nullopt: no such iteration. Errors: those of git; what
// the agent handed in is never one.
Result<std::optional<KnownIteration>> known_iteration(const std::filesystem::path& log_dir,
                                                      const GitCheckout& repository, std::span<const Record> records,
                                                      int iteration);

// To be called once the iteration has its `iteration_end`; again after a kill, at no harm. Errors: those of
// append_ledger() and of known_iteration().
Status keep_in_ledger(const std::filesystem::path& log_dir, const GitCheckout& repository,
                      std::span<const Record> records, int iteration);

}  // namespace gdnctl::loop
