// The files of a run in its log directory: names, what is there from earlier runs, what may go.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace gdnctl::loop {

// "iteration-007-"; three digits at least.
std::string iteration_prefix(int iteration);
// The number in "iteration-NNN-..."; 0: some other name.
int iteration_of(std::string_view file_name);

// iteration-NNN-repositories: what an agent made inside the tree with `git init`.
inline constexpr std::string_view k_repositories = "repositories";

class Artefacts {
public:
    // Error: local_io (see make_private_directory()).
    static Result<Artefacts> open(std::filesystem::path log_dir);
    const std::filesystem::path& folder() const { return m_folder; }

    // <log-dir>/iteration-NNN-<name>, whether it is there or not.
    std::filesystem::path path(int iteration, std::string_view name) const;
    // A name that no file has yet: iteration-NNN-<stem><ending>, then ...-<stem>.2<ending>, and so on. Packed files
    // (".gz") count as there.
    std::filesystem::path unused(int iteration, std::string_view stem, std::string_view ending) const;

    // What earlier runs left (iteration-*, journal.jsonl, state.json, state.json.bak) goes to previous/<run>/, under
    // new names where that has them already. For a fresh start; a resumed run goes on beside its own files. Returns how
    // many were moved.
    Result<int> set_earlier_aside(std::string_view run) const;

    // Removes the files of iterations up to `latest` - `keep`; returns how many. Nothing of git's is touched, and
    // folders k_repositories stay.
    Result<int> prune(int latest, int keep) const;

    // <log-dir>/STOP: somebody asks for the end. It is left where it is.
    bool stop_requested() const;

private:
    explicit Artefacts(std::filesystem::path folder) : m_folder(std::move(folder)) {}
    std::filesystem::path m_folder;
};

}  // namespace gdnctl::loop
