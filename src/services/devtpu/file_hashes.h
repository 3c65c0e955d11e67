// SHA-256 of files, remembered between runs: a file is read again only if its size, times or inode have changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"

namespace gdnctl::devtpu {

// What is known about files here and on a host. A key holds everything that changes with the content.
class FileHashes {
public:
    // A missing or damaged file knows nothing.
    explicit FileHashes(std::filesystem::path file);

    std::optional<std::string> find(const std::string& key);
    // `settled`: the file has not changed for so long that a later change must show in its key.
    void put(const std::string& key, std::string hash, bool settled);
    // Keeps what was asked for or added since the start. Failures are logged at debug level.
    void save() const;

private:
    struct Entry {
        std::string hash;
        bool used = false, settled = true;
    };
    std::filesystem::path m_file;
    std::unordered_map<std::string, Entry> m_entries;
    bool m_changed = false;
};

struct LocalFile {
    std::string name;  // relative to the tree
    std::string hash;
    std::uint64_t size = 0;
    bool executable = false;
};

// The regular files among `names` below `root`, links followed, in the given order. Errors: local_io (unreadable, or a
// link that leads out of the tree), interrupted.
Result<std::vector<LocalFile>> local_files(const std::filesystem::path& root, const std::vector<std::string>& names,
                                           FileHashes& known, const std::stop_token& stop);

}  // namespace gdnctl::devtpu
