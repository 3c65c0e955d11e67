// Files: bounded reading, atomic replacement, private folders, and paths that stay inside a folder.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <sys/types.h>

#include "core/result.h"

namespace gdnctl {

// "cannot <what> PATH: <reason>", with a hint if the disk is full, a quota or size limit is reached, or permission is
// missing.
Error file_error(ErrorKind kind, std::string_view what, const std::filesystem::path& path, int error_number);

struct ReadOptions {
    std::size_t limit = std::size_t{64} << 20;  // bytes; a larger file is bad_input
    ErrorKind missing = ErrorKind::usage;       // for a path that does not exist or is a folder
};

// The whole file, whatever its type (a pipe is read to its end). Errors: `missing`; local_io (permission, I/O);
// bad_input (over the limit); interrupted or terminated while it waits for a pipe.
Result<std::string> read_file(const std::filesystem::path& path, const ReadOptions& options = {});
// nullopt: no such file. A folder is local_io.
Result<std::optional<std::string>> read_file_if_exists(const std::filesystem::path& path,
                                                       std::size_t limit = std::size_t{64} << 20);
// The same for an open descriptor; `name` is for errors ("standard input").
Result<std::string> read_descriptor(int fd, std::string_view name, std::size_t limit = std::size_t{64} << 20);

// Writes all bytes, and retries after interruptions. Returns 0 or errno.
int write_fully(int fd, std::string_view bytes);

// Replaces the content of `path` atomically: a reader, or a crash at any instant, sees either the old bytes or the new
// ones (temporary file in the same folder, fsync, rename, fsync of the folder). Follows a symbolic link, and keeps the
// mode and, where allowed, the owner; `mode` (less umask) is for a new file. A path that is not a regular file (a pipe,
// /dev/null) is written to directly. Hard links are separated. Error: local_io, with the old content in place and no
// temporary file left. If a process was killed, the next call for the same path removes its temporary file.
Status atomic_replace(const std::filesystem::path& path, std::string_view bytes, mode_t mode = 0666);

// Creates `path` and missing parents with mode 0700. Error local_io: cannot create it, it is not a folder, it belongs
// to another user (`hint` then says what to do), or other users may write to it.
Status make_private_directory(const std::filesystem::path& path,
                              std::string_view hint = "choose another state directory with GDNCTL_STATE_DIR");
Status sync_directory(const std::filesystem::path& path);  // makes creations and renames in it durable

// Whether `path` is `root` or below it. Compares the text only, with "." and ".." resolved; both must be absolute or
// both relative.
bool is_inside(const std::filesystem::path& root, const std::filesystem::path& path);
// root/relative for a path from an untrusted source (an archive member, a record). Error local_io "unsafe path":
// absolute, empty, with "..", a NUL byte, or leading out of `root` through a symbolic link.
Result<std::filesystem::path> join_inside(const std::filesystem::path& root, std::string_view relative);

// The first DIR/name that exists, DIR being `start` (absolute) or one of its parents.
std::optional<std::filesystem::path> find_upward(const std::filesystem::path& start, std::string_view name);

// The folder at or above `from` that holds `.git` (a folder or a file); nullopt: none.
std::optional<std::filesystem::path> find_repository_root(const std::filesystem::path& from);

// An owned file descriptor.

class UniqueFd {
public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : m_fd(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : m_fd(std::exchange(other.m_fd, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        if (this != &other) reset(std::exchange(other.m_fd, -1));
        return *this;
    }
    UniqueFd(const UniqueFd&) = delete;
    UniqueFd& operator=(const UniqueFd&) = delete;
    ~UniqueFd() { reset(); }

    int get() const { return m_fd; }
    bool valid() const { return m_fd >= 0; }
    int release() { return std::exchange(m_fd, -1); }
    void reset(int fd = -1);  // closes the old one

private:
    int m_fd = -1;
};

// Replaces a file that is rewritten often.

// Like atomic_replace(), without the fsync of the folder: after a crash of the machine, the complete old content may be
// back. For files that can be made again.
Status replace_whole(const std::filesystem::path& path, std::string_view bytes, mode_t mode = 0666);

// A private folder that is removed with its owner.

class TempFolder {
public:
    // Creates <base>/<name>.XXXXXX with access for us alone. Error: local_io.
    static Result<TempFolder> make(const std::filesystem::path& base, std::string_view name);

    const std::filesystem::path& path() const { return m_path; }

    TempFolder() = default;
    TempFolder(TempFolder&& other) noexcept : m_path(std::exchange(other.m_path, {})) {}
    TempFolder& operator=(TempFolder&& other) noexcept {
        m_path.swap(other.m_path);
        return *this;
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    ~TempFolder();

private:
    std::filesystem::path m_path;
};

}  // namespace gdnctl
