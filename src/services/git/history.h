// The raw reads from which the facts are computed, implemented by libgit2 and by the git program.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/commit_facts.h"
#include "core/result.h"
#include "core/time.h"

namespace gdnctl {
class Process;
}

namespace gdnctl::git {

struct Commit {
    std::string sha;
    WallTime time;  // committer date
    std::vector<std::string> parents;
    std::string message;
};

// A commit whose version of the file differs from that of every parent.
struct FileVersion {
    std::string commit;
    std::string blob;
    std::vector<std::string> parent_blobs;  // of the parents that have the file
};

class Repository {
public:
    virtual ~Repository() = default;
    // nullopt: no such commit, or the name is ambiguous.
    virtual Result<std::optional<Commit>> commit(std::string_view revision) = 0;
    // Everything reachable from `tips`, children before parents.
    virtual Result<std::vector<Commit>> history(std::span<const std::string> tips) = 0;
    // Commits at refs under `prefix` ("refs/gdnctl/").
    virtual Result<std::vector<std::string>> tips_under(std::string_view prefix) = 0;
    // From the whole history of `tip`, children before parents.
    virtual Result<std::vector<FileVersion>> file_versions(std::string_view tip, std::string_view path) = 0;
    virtual Result<std::vector<std::string>> blobs(std::span<const std::string> ids) = 0;
    virtual Result<std::optional<std::string>> file_at(std::string_view revision, std::string_view path) = 0;
    // Commits whose parents a shallow clone cut off.
    virtual Result<std::vector<std::string>> shallow_commits() = 0;
};

// nullptr: libgit2 cannot be trusted with this repository (`why` says so); use the program.
Result<std::unique_ptr<Repository>> open_with_libgit2(const std::filesystem::path& root, std::string& why);
Result<std::unique_ptr<Repository>> open_with_program(const std::filesystem::path& root, Process& process);

}  // namespace gdnctl::git

namespace gdnctl::git {

// Answers about history, computed once from raw reads and cached.

class HistoryFacts final : public CommitFacts {
public:
    explicit HistoryFacts(std::unique_ptr<Repository> repository) : m_repository(std::move(repository)) {}

    Result<bool> is_shallow() override;
    Result<std::optional<CommitInfo>> resolve(std::string_view revision) override;
    Result<bool> is_ancestor_of_head(std::string_view sha) override;
    Result<bool> on_parked_ref(std::string_view sha) override;
    Result<bool> is_reverted(std::string_view sha) override;
    Result<std::optional<CommitInfo>> introduced_line(std::string_view path, std::string_view line) override;
    Result<std::optional<CommitInfo>> with_iteration_trailer(std::string_view record_id) override;
    Result<std::optional<std::string>> file_at(std::string_view revision, std::string_view path) override;

private:
    struct History {
        std::vector<Commit> commits;
        std::unordered_map<std::string, std::size_t> index;  // full sha -> position
    };
    // For one file: full sha of the introducing commit, by heading line.
    struct FileIndex {
        std::vector<FileVersion> versions;                   // parents before children
        std::unordered_map<std::string, std::string> lines;  // heading line -> full sha
    };

    Result<const History*> head_history();
    Result<const History*> parked_history();
    Result<FileIndex*> file_index(std::string_view path);
    using Texts = std::vector<const std::string*>;
    template <class F>
    Status each_version(const FileIndex& file, F use);
    Result<std::optional<std::string>> search_line(const FileIndex& file, std::string_view line);
    Result<std::string> full_sha(std::string_view sha);
    bool reverted_by_living_commit(const std::string& sha, std::unordered_set<std::string>& seen) const;
    std::optional<CommitInfo> find_trailer(const History& history, std::string_view record_id) const;

    std::unique_ptr<Repository> m_repository;
    std::unordered_map<std::string, std::optional<CommitInfo>> m_resolved;
    std::optional<History> m_head;
    std::optional<History> m_parked;
    std::multimap<std::string, std::string> m_reverts;  // sha as the message gives it -> reverting commit
    std::map<std::string, FileIndex, std::less<>> m_files;
};

CommitInfo info_of(const Commit& commit);

// Pure parts, exposed for tests.
std::vector<std::string> reverted_shas(std::string_view message);
// Value of the last `key: value` line in the last paragraph of a commit message; empty: none.
std::string_view trailer(std::string_view message, std::string_view key);

}  // namespace gdnctl::git
