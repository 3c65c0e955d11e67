// Checkouts in which commits are measured: one worktree besides the iteration's, moved from commit to commit.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

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
    std::optional<GitSlot> m_slot;
};

}  // namespace gdnctl::loop
