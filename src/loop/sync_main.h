// --sync-main-policy: the branch that iterations begin at follows another one.
#pragma once

#include <filesystem>
#include <stop_token>

#include "gdnctl/core/result.h"
#include "gdnctl/loop/options.h"
#include "gdnctl/platform/clock.h"
#include "gdnctl/platform/process.h"

namespace gdnctl::loop {

class SyncMain {
public:
    SyncMain(const LoopOptions& options, std::filesystem::path checkout, Process& process, Clock& clock,
             std::stop_token stop)
        : m_options(options.sync),
          m_conflicts(options.sync_main_conflict_policy),
          m_checkout(std::move(checkout)),
          m_process(process),
          m_clock(clock),
          m_stop(std::move(stop)) {}

    // Fetches and merges, where the policy wants it now. A merge that fails is taken back. Errors: conflict ("failed to
    // merge R/B into current branch ..."), infrastructure (fetch); interrupted, terminated.
    Status run();

private:
    Result<ProcessResult> git(std::vector<std::string> words);
    SyncOptions m_options;
    ConflictPolicy m_conflicts;
    std::filesystem::path m_checkout;
    Process& m_process;
    Clock& m_clock;
    std::stop_token m_stop;
    bool m_done = false;
};

}  // namespace gdnctl::loop
