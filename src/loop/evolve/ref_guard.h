// The user's branches, tags and stashes while an agent works: changes by the agent through its worktree are undone;
// changes by others meanwhile are kept.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "services/git/checkout.h"

namespace gdnctl::loop::evolve {

// HEAD of the agent's worktree.
struct AgentHead {
    std::set<std::string> commits;  // that it has been at
    std::string ref;                // of the branch that it is on; empty: none
};

class RefGuard {
public:
    // The names as they are now. `repository` must outlive it.
    static Result<RefGuard> snapshot(const GitCheckout& repository);
    // Those of a run that was killed, from the file that it kept while its agent worked.
    static Result<RefGuard> read(const GitCheckout& repository, const std::filesystem::path& file);
    Status write(const std::filesystem::path& file) const;
    // Deleted names are restored. A name that points to one of the agent's commits is put back, or removed if it is
    // new, as is a new branch that its HEAD is on; but not `after_a_kill`: the user may have created it to look at what
    // was left. Returns what was undone, in words.
    Result<std::vector<std::string>> put_back(const AgentHead& agent, bool after_a_kill) const;

private:
    RefGuard(const GitCheckout& repository, std::vector<GitName> names)
        : m_repository(&repository), m_names(std::move(names)) {}
    const GitCheckout* m_repository;
    std::vector<GitName> m_names;
};

// All commits that HEAD of this checkout has been at, by its reflog.
std::set<std::string> commits_of_head(const std::filesystem::path& git_dir);

}  // namespace gdnctl::loop::evolve
