// Checkouts in which commits are measured, and the ignored paths of the user's checkout, such as .venv, to which they
// get links.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

// The path without "." and trailing slashes. Error usage: it is absolute or empty, or leads out of the checkout or into
// .git. The link replaces whatever is at that path, so nothing else may be named.
Result<std::string> slot_link(std::string_view given);

// Error usage: git tracks one of them. Writing through the link would then change the user's checkout.
Status check_untracked(const GitCheckout& repository, const std::vector<std::string>& links);

// Creates links in `slot` to those of `links` (from slot_link()) that exist in `checkout`. Anything else at the same
// path is removed. If its folder leads out of the slot, a warning is logged and nothing is done.
Status make_links(const std::filesystem::path& slot, const std::filesystem::path& checkout,
                  const std::vector<std::string>& links);

// Checkouts in which commits are measured: one worktree besides the iteration's, moved from commit to commit.

struct TreeSettings {
    std::filesystem::path folder;        // of the worktree; made on first use
    std::vector<std::string> log_paths;  // globs: not part of what is measured
    std::vector<std::string> links;      // ignored paths of the checkout that a measurement needs
};

class CommitTrees {
public:
    // `repository` must outlive it.
    CommitTrees(const GitCheckout& repository, TreeSettings settings, Process& process, Clock& clock)
        : m_repository(repository), m_settings(std::move(settings)), m_process(process), m_clock(clock) {}

    // A folder with the files of this commit and nothing else, valid until the next call.
    Result<std::filesystem::path> at(const std::string& commit);
    // Whether any files except logs differ; true if a commit no longer exists.
    Result<bool> differs(const std::string& from, const std::string& to) const;

private:
    const GitCheckout& m_repository;
    TreeSettings m_settings;
    Process& m_process;
    Clock& m_clock;
    std::optional<PrivateWorktree> m_slot;
};

}  // namespace gdnctl::loop
