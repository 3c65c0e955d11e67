// Exact copies of uncommitted files, in addition to a stash. A stash only holds git's view of files: line ends after
// its filters, one bit of the mode, no times, no empty folders. The shelf keeps the files themselves as hard links, so
// that they can be restored exactly.
//
//   <git dir>/gdnctl-shelf/<hash of the stash's message>/list          one record per file and folder
//   <git dir>/gdnctl-shelf/<hash of the stash's message>/files/<path>  the file, in folders with the original modes
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
    std::uint64_t inode = 0;  // for an `other`, such as a pipe, nothing else can be compared
    std::string hash;         // SHA-256 of a file's bytes, or of a link's target
    std::string path;         // relative to the root
};

// The result of restore(): paths of the list.
struct Unshelved {
    std::vector<std::string> different;  // different from before
    std::set<std::string> proven;        // exactly as before
};

class Shelf {
public:
    // Errors: those of hash_hex().
    static Result<Shelf> of(const Calls& calls, std::string_view message);

    // Saves what git is about to stash, and the folders that it will remove. Changes nothing in the checkout.
    Status fill(const Calls& calls) const;
    // After the stash: recreates folders that were empty.
    Status keep_empty_folders() const;
    // After git has restored the stash: restores each file and folder exactly. For those in `merged`, which have
    // further changes, only the mode. nullopt: no such shelf.
    Result<std::optional<Unshelved>> restore(const std::set<std::string>& merged) const;
    Status drop() const;

    // Where the files are, under their own names; nullopt: no such shelf.
    std::optional<std::filesystem::path> files() const;
    // Removes this checkout's shelves that belong to none of these messages: their stash was never made, or its owner
    // dropped it.
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
