// The folder that downloads go to. Names in it come from a server: every way to a file is walked folder by folder
// without following symbolic links, so that nothing outside can be reached, whatever somebody has planted there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <sys/stat.h>

#include "platform/fd.h"
#include "services/hub/transfer/failure.h"

namespace gdnctl::hub {

// "no space left on device: PATH", or "cannot <what> PATH: <reason>". local_io.
Failure local_failure(std::string_view what, const std::filesystem::path& path, int error_number);

class OutFolder {
public:
    // Creates it, with its parents, unless `existing_only`: then a folder that is not there is as an empty one.
    static Outcome<OutFolder> open(const std::filesystem::path& path, bool existing_only);

    const std::filesystem::path& path() const { return m_path; }
    std::filesystem::path whole(std::string_view relative) const { return m_path / relative; }
    bool exists() const { return m_fd.valid(); }

    // All paths are relative to the folder and known to be safe (why_unsafe) or our own. Errors of all: local_io.
    Outcome<UniqueFd> open_file(std::string_view relative, int flags, mode_t mode = 0666);
    // nullopt: nothing is there. A symbolic link, there or on the way, is an error.
    Outcome<std::optional<struct stat>> facts(std::string_view relative);
    // nullopt: there is no such file, or it is longer than `limit`.
    Outcome<std::optional<std::string>> read(std::string_view relative, std::size_t limit);
    Outcome<void> replace(std::string_view relative, std::string_view bytes);  // temporary name, then rename
    Outcome<void> move(std::string_view from, std::string_view to);
    void remove(std::string_view relative);  // if it is there
    std::optional<std::uint64_t> free_bytes() const;
    // False on file systems whose flock() may grant a lock to everyone (NFS, Lustre, GPFS).
    bool locks_can_be_trusted() const;
    bool ignores_case(std::string_view existing) const;

private:
    OutFolder() = default;
    struct Parent {
        int fd;
        std::string name;
    };
    Outcome<Parent> parent_of(std::string_view relative, bool create);

    std::filesystem::path m_path;
    UniqueFd m_fd;
    std::map<std::string, UniqueFd, std::less<>> m_folders;  // those opened lately, by path
};

}  // namespace gdnctl::hub
