// The repository of an evolve run: its refs, worktree, candidates and notes; and the key that two changes share if they
// differ only in comments and white space.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "loop/evolve/ref_guard.h"
#include "services/git/checkout.h"
#include "services/git/settings.h"

namespace gdnctl::loop::evolve {

// The content without comments, blank lines and white space at the ends of lines; runs of it are one blank. Which
// comments there are is told by the name's ending: those of C (.c, .h, .cc, .cpp, .hpp, .cu) or those with `#` (.py,
// .sh; the indentation of .py stays). Any other file is as it is. Strings are left alone.
std::string without_comments(std::string_view path, std::string_view content);

// Candidates as commits: refs, notes, and what an agent left, sorted into what may be judged and what may not.
//
//   refs/gdnctl/evolve/<run>/base, /best, /cand/<attempt>, /lineage/<k>     refs/notes/gdnctl-<run>
//
// The loop commits, not the agent: the mutable paths of its worktree, everything else from the parent.

std::string ref_of(std::string_view run, std::string_view name);  // "best", "cand/7"

// Which paths are what. gdnctl.toml is always protected.
struct PathRules {
    std::vector<std::string> kernel, guarded;  // globs
    bool is_mutable(std::string_view path) const;
    bool is_protected(std::string_view path) const;
};

// What an agent left against its parent.
struct Work {
    std::vector<GitFileChange> changes;  // of mutable paths: what the commit takes
    std::vector<std::string> forbidden;  // dropped: neither mutable nor allowed
    std::vector<std::string> tampered;   // of these the protected ones
    std::vector<std::string> refused;    // too large, links out of the tree, repositories, submodules
    std::vector<std::string> ignored;    // files that git ignores, at most 100
    int agent_commits = 0;
};

struct Candidate {
    std::string commit, tree, mutable_key, patch_id;
    std::string code_key;        // as patch_id, but for comments and white space
    int added = 0, removed = 0;  // lines
    std::vector<std::string> files;
};

class Store {
public:
    // `worktrees`: the run's folder for worktrees, outside of the repository. All references must outlive it.
    Store(const GitCheckout& repository, std::string run, PathRules rules, std::filesystem::path worktrees,
          Process& process, Clock& clock)
        : m_repository(repository),
          m_run(std::move(run)),
          m_rules(std::move(rules)),
          m_worktrees(std::move(worktrees)),
          m_process(process),
          m_clock(clock) {}

    const GitCheckout& repository() const { return m_repository; }
    const PathRules& rules() const { return m_rules; }

    // Opens the agent's worktree with only the files of `commit`. Its previous contents are lost: collect them first.
    Result<std::filesystem::path> prepare(const std::string& commit);
    Result<Work> collect(const std::string& parent);
    // Detaches HEAD of the agent's worktree, if there is one, and returns where it was.
    Result<AgentHead> leave_branch();
    // How git behaves in the user's repository, from before an agent or its code runs until it has ended. Remembering
    // changes nothing if it is known already. Restoring returns what was put back: see GitSettings.
    Status remember_setup();
    Result<std::vector<std::string>> restore_setup();
    // The commit of that work; the same input has the same id. nullopt: nothing mutable was changed.
    Result<std::optional<Candidate>> commit(const Work& work, std::span<const std::string> parents,
                                            std::string_view message, WallTime when) const;
    Status write_patch(const std::string& from, const std::string& to, const std::filesystem::path& file) const;

    // Tells two candidates apart by the files that may be changed.
    Result<std::string> mutable_key(std::string_view commit) const;
    Result<std::map<std::string, std::string>> guards(std::string_view commit) const;        // protected path -> blob
    Result<std::map<std::string, std::string>> mutable_text(std::string_view commit) const;  // path -> content

    Status pin(std::string_view name, const std::string& commit) const;
    Status note(const std::string& commit, std::string_view text) const;
    // Removes the agent's worktree. Everything in it has a ref by then.
    Status tidy() const;

    // Calls `use` with a folder that has only the files of `commit`, at an unpredictable path, and removes it
    // afterwards.
    using UseTree = std::function<Status(const std::filesystem::path& tree)>;
    Status with_fresh_checkout(const std::string& commit, const UseTree& use) const;

private:
    std::filesystem::path slot_folder() const { return m_worktrees / "agent"; }
    Status sort_change(const GitFileChange& change, Work& work) const;
    Result<std::string> code_key(std::span<const GitFileChange> changes) const;
    const GitCheckout& m_repository;
    std::string m_run;
    PathRules m_rules;
    std::filesystem::path m_worktrees;
    Process& m_process;
    Clock& m_clock;
    std::optional<PrivateWorktree> m_slot;
    std::optional<GitSettings> m_setup;
};

}  // namespace gdnctl::loop::evolve
