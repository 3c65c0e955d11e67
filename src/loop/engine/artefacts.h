// The files of a run in its log directory: their names, what earlier runs left, and what may be removed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace gdnctl::loop {

// "iteration-007-"; at least three digits.
std::string iteration_prefix(int iteration);
// The number in "iteration-NNN-..."; 0: another kind of name.
int iteration_of(std::string_view file_name);

// iteration-NNN-repositories: repositories that the agent created in the tree with `git init`.
inline constexpr std::string_view k_repositories = "repositories";

class Artefacts {
public:
    // Error: local_io (see make_private_directory()).
    static Result<Artefacts> open(std::filesystem::path log_dir);
    const std::filesystem::path& folder() const { return m_folder; }

    // <log-dir>/iteration-NNN-<name>, whether it exists or not.
    std::filesystem::path path(int iteration, std::string_view name) const;
    // A name that no file has yet: iteration-NNN-<stem><ending>, then ...-<stem>.2<ending>, and so on. Packed files
    // (".gz") count as existing.
    std::filesystem::path unused(int iteration, std::string_view stem, std::string_view ending) const;

    // Moves what earlier runs left (iteration-*, journal.jsonl, state.json, state.json.bak) to previous/<run>/, under
    // new names if those exist there. For a fresh start; a resumed run continues beside its own files. Returns how many
    // were moved.
    Result<int> set_earlier_aside(std::string_view run) const;

    // Removes the files of iterations up to `latest` - `keep`; returns how many. Leaves git's refs and k_repositories
    // folders alone.
    Result<int> prune(int latest, int keep) const;

    // <log-dir>/STOP exists: the run was asked to end. The file is not removed.
    bool stop_requested() const;

private:
    explicit Artefacts(std::filesystem::path folder) : m_folder(std::move(folder)) {}
    std::filesystem::path m_folder;
};

}  // namespace gdnctl::loop
