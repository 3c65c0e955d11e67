// What loops leave behind in a repository and in the state directory, and its removal.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

struct Remains {
    std::vector<std::filesystem::path> worktrees;  // of this repository's iterations and measurements
    std::vector<GitRefUpdate> refs;                // deletions, each of exactly this target
    std::vector<std::filesystem::path> caches;     // folders in the state directory
    std::string kept;                              // why the work of the latest run stays; empty: it may go
};

// What no loop needs: worktrees, whatever their age, and refs of runs and caches from before `before`. A run that
// --resume can continue keeps its own. The caller holds the LoopLock of `log_dir` or of the repository.
Result<Remains> find_remains(const GitCheckout& repository, const std::filesystem::path& log_dir,
                             const std::filesystem::path& state_dir, WallTime before);

// Removes it. Work in a worktree that no ref has is first pinned at refs/gdnctl/rescued/<commit>. Stops at the first
// error.
Status remove_remains(const GitCheckout& repository, const Remains& remains, Process& process, Clock& clock);

// Takes those worktrees that exist off git's list and removes their folders.
Status remove_worktrees(const GitCheckout& repository, const std::vector<std::filesystem::path>& folders);
// Where champions are measured: beside the iterations' slot_folder().
std::filesystem::path measure_folder(const std::filesystem::path& slot);

}  // namespace gdnctl::loop
