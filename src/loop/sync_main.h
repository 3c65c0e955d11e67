// --sync-main-policy: the branch that iterations begin at follows another one.
#pragma once

#include <stop_token>

#include "gdnctl/core/result.h"
#include "gdnctl/loop/options.h"
#include "gdnctl/services/git_checkout.h"

namespace gdnctl::loop {

class SyncMain {
public:
    // `checkout`, the user's, must outlive it.
    SyncMain(const LoopOptions& options, const GitCheckout& checkout, std::stop_token stop)
        : m_options(options.sync),
          m_conflicts(options.sync_main_conflict_policy),
          m_checkout(checkout),
          m_stop(std::move(stop)) {}

    // Fetches and merges, where the policy wants it now. What conflicts is not begun. Errors: conflict ("failed to
    // merge R/B into current branch ..."), infrastructure (fetch); interrupted, terminated.
    Status run();

private:
    Status fetch() const;
    Status merge(const std::string& branch) const;
    SyncOptions m_options;
    ConflictPolicy m_conflicts;
    const GitCheckout& m_checkout;
    std::stop_token m_stop;
    bool m_done = false;
};

}  // namespace gdnctl::loop
