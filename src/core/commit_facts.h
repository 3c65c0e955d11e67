// What the log tools ask of a repository. services/git implements it, and tests use a literal table. Callers without a
// repository pass nullptr.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/time.h"

namespace gdnctl {

struct CommitInfo {
    std::string sha;  // 40 hex digits
    WallTime time;    // committer date
    std::string summary;
    bool is_merge = false;
};

inline constexpr std::string_view k_fetch_all =
    "fetch the whole history: `git fetch --unshallow`, or `fetch-depth: 0` for actions/checkout";

class CommitFacts {
public:
    virtual ~CommitFacts() = default;
    // Whether the clone lacks older commits, so that a commit which is not found may still exist.
    virtual Result<bool> is_shallow() = 0;
    // The commit that a full or abbreviated sha or a revision names; nullopt: no such commit.
    virtual Result<std::optional<CommitInfo>> resolve(std::string_view revision) = 0;
    virtual Result<bool> is_ancestor_of_head(std::string_view sha) = 0;
    // Whether a ref that keeps attempts outside the branch (refs/gdnctl/**, such as refs/gdnctl/<run>/iter-012)
    // contains the commit.
    virtual Result<bool> on_parked_ref(std::string_view sha) = 0;
    // Whether a later commit in HEAD's history says that it reverts `sha`.
    virtual Result<bool> is_reverted(std::string_view sha) = 0;
    // The commit that first added exactly this line to the file (repository-relative path); nullopt: the line is not
    // committed yet.
    virtual Result<std::optional<CommitInfo>> introduced_line(std::string_view path, std::string_view line) = 0;
    // The commit whose message carries the trailer `Gdnctl-Iteration: <record id>`.
    virtual Result<std::optional<CommitInfo>> with_iteration_trailer(std::string_view record_id) = 0;
    // The bytes of a file at a revision; nullopt: the file did not exist there.
    virtual Result<std::optional<std::string>> file_at(std::string_view revision, std::string_view path) = 0;
};

}  // namespace gdnctl
