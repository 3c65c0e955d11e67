// The raw reads from which the facts are computed, implemented by libgit2 and by the git program.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
