// --sync-main-policy: merges another branch into the one that iterations start from.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "core/result.h"
#include "loop/engine/journal.h"
#include "loop/engine/options.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

class SyncMain {
public:
    // Writes a merge_intent into the journal.
    using Note = std::function<Status(std::map<std::string, std::string> text)>;

    // `checkout`, the user's, must outlive the object.
    SyncMain(const LoopOptions& options, const GitCheckout& checkout, std::stop_token stop, Note note)
        : m_options(options.sync),
          m_conflicts(options.sync_main_conflict_policy),
          m_checkout(checkout),
          m_stop(std::move(stop)),
          m_note(std::move(note)) {}

    // Fetches and merges if the policy calls for it now. A merge with conflicts is not started. A merge that a kill
    // interrupted, according to `open`, the open iteration's records, is finished first. `into`: branch to merge into;
    // empty: HEAD. Errors: conflict ("failed to merge R/B into current branch
    // ..."), infrastructure (fetch); interrupted, terminated.
    Status run(const std::string& into, std::span<const Record> open);

private:
    Status fetch() const;
    Status merge(const std::string& into, const std::string& branch) const;
    // nullopt: they conflict.
    Result<std::optional<std::string>> merged(const std::string& branch, const GitHead& ours,
                                              const std::string& theirs) const;
    Status move(const Record& intent, bool again, const std::string& branch) const;
    SyncOptions m_options;
    ConflictPolicy m_conflicts;
    const GitCheckout& m_checkout;
    std::stop_token m_stop;
    Note m_note;
    bool m_done = false;
};

}  // namespace gdnctl::loop
