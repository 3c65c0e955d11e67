// Uncommitted files as they are, beside a stash. A stash holds what git makes of files: line ends as its filters want
// them, one bit of the mode, no times, no empty folder. The shelf has the files themselves, as further hard links, so
// that they come back as they were.
//
//   <git dir>/gdnctl-shelf/<hash of the stash's message>/list          a record for each file and folder
//   <git dir>/gdnctl-shelf/<hash of the stash's message>/files/<path>  the file, in folders with the modes of theirs
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "services/git/calls.h"

namespace gdnctl::git {

struct Shelved {
    enum class Kind : char { file = 'f', link = 'l', other = 'o', folder = 'd', empty_folder = 'e' };
    Kind kind = Kind::file;
    unsigned mode = 0;  // permission bits
    timespec modified{};
    std::uint64_t inode = 0;  // of an `other`, such as a pipe, all that there is to compare
    std::string hash;         // SHA-256 of a file's bytes, or of what a link names
    std::string path;         // relative to the root
};

// What restore() found: paths of the list.
struct Unshelved {
    std::vector<std::string> different;  // not as they were
    std::set<std::string> proven;        // exactly as they were
};

class Shelf {
public:
    // Errors: those of hash_hex().
    static Result<Shelf> of(const Calls& calls, std::string_view message);

    // What git is about to stash, and the folders that it will remove. Nothing in the checkout changes.
    Status fill(const Calls& calls) const;
    // After the stash: folders that were empty are there again.
    Status keep_empty_folders() const;
    // After git brought the stash back: each file and folder is as it was, save the mode alone of those in `merged`,
    // which hold more by now. nullopt: there is no such shelf.
    Result<std::optional<Unshelved>> restore(const std::set<std::string>& merged) const;
    Status drop() const;

    // Where the files are, by their own names; nullopt: there is no such shelf.
    std::optional<std::filesystem::path> files() const;
    // Removes the shelves of this checkout that belong to none of these messages: of a stash that was never made, or
    // that its owner has dropped.
    static Status sweep(const Calls& calls, const std::vector<std::string>& messages);

private:
    Shelf(std::filesystem::path root, std::filesystem::path folder)
        : m_root(std::move(root)), m_folder(std::move(folder)) {}

    Result<std::optional<std::vector<Shelved>>> list() const;
    std::filesystem::path place_of(const Shelved& entry) const { return m_folder / "files" / entry.path; }
    Status make_folder(const std::filesystem::path& relative) const;
    Status put(const Shelved& entry) const;
    Status restore_file(std::size_t number, const Shelved& entry) const;
    std::filesystem::path m_root, m_folder;
};

}  // namespace gdnctl::git
