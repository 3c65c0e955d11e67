#include "platform/fs.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/fd.h"
#include "platform/signals.h"

namespace gdnctl {

namespace fs = std::filesystem;

namespace {

// What `ls` can show: the path, or the deepest part of it that exists.
fs::path first_that_exists(fs::path path) {
    std::error_code problem;
    while (!fs::exists(fs::symlink_status(path, problem)) && path.has_relative_path()) path = path.parent_path();
    return path.empty() ? "." : path;
}

}  // namespace

Error file_error(ErrorKind kind, std::string_view what, const fs::path& path, int error_number) {
    std::string hint;
    switch (error_number) {
        case ENOSPC:
        case EDQUOT: hint = "free space there, then run the command again"; break;
        case EFBIG: hint = "raise the file size limit (ulimit -f), then run the command again"; break;
        case EROFS: hint = "the file system is mounted read-only; choose another place"; break;
        case EACCES:
        case EPERM: hint = fmt::format("check owner and mode: ls -ld '{}'", first_that_exists(path).string()); break;
        default: break;
    }
    return {kind, fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(error_number)), hint, {}};
}

namespace {

// Waits for bytes or the end of a pipe or terminal; false: a signal asks us to stop. A signal that arrives just before
// a blocking call would go unnoticed, hence the check twice a second.
bool wait_for_input(int fd) {
    constexpr int k_look_ms = 500;
    pollfd ready{fd, POLLIN, 0};
    while (!received_signal()) {
        const int n = poll(&ready, 1, k_look_ms);
        if (n > 0 || (n < 0 && errno != EINTR)) return true;
    }
    return false;
}

tl::unexpected<Error> too_large(std::string_view name, std::size_t limit) {
    return fail(ErrorKind::bad_input, fmt::format("{} is larger than the limit of {} bytes", name, limit));
}

}  // namespace

Result<std::string> read_descriptor(int fd, std::string_view name, std::size_t limit) {
    constexpr std::size_t k_step = std::size_t{64} << 10;
    std::string bytes;
    struct stat facts{};
    const bool may_wait = fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode);
    if (!may_wait) {
        if (static_cast<std::size_t>(facts.st_size) > limit) return too_large(name, limit);
        // Room for one more step, so that the read that finds the end does not double the buffer.
        bytes.reserve(std::min(static_cast<std::size_t>(facts.st_size), limit) + k_step);
    }
    std::size_t used = 0;
    for (;;) {
        if (may_wait && !wait_for_input(fd)) return tl::unexpected(stopped_error());
        bytes.resize(std::max(bytes.capacity(), used + k_step));
        const ssize_t n = read(fd, bytes.data() + used, bytes.size() - used);
        if (n < 0) {
            if (errno == EINTR || errno == EAGAIN) continue;
            return tl::unexpected(file_error(ErrorKind::local_io, "read", name, errno));
        }
        used += static_cast<std::size_t>(n);
        if (used > limit) return too_large(name, limit);
        if (n == 0) break;
    }
    bytes.resize(used);
    return bytes;
}

Result<std::string> read_file(const fs::path& path, const ReadOptions& options) {
    int number = 0;
    do {
        number = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (number < 0 && errno == EINTR && received_signal()) return tl::unexpected(stopped_error());
    } while (number < 0 && errno == EINTR);
    const UniqueFd fd(number);
    if (!fd.valid()) {
        const bool absent = errno == ENOENT || errno == ENOTDIR;
        return tl::unexpected(file_error(absent ? options.missing : ErrorKind::local_io, "read", path, errno));
    }
    struct stat facts{};
    if (fstat(fd.get(), &facts) == 0 && S_ISDIR(facts.st_mode)) {
        return tl::unexpected(file_error(options.missing, "read", path, EISDIR));
    }
    return read_descriptor(fd.get(), path.string(), options.limit);
}

Result<std::optional<std::string>> read_file_if_exists(const fs::path& path, std::size_t limit) {
    struct stat facts{};
    if (stat(path.c_str(), &facts) != 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
    GDNCTL_TRY_ASSIGN(std::string bytes, read_file(path, {.limit = limit, .missing = ErrorKind::local_io}));
    return std::optional<std::string>(std::move(bytes));
}

int write_fully(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = write(fd, bytes.data(), bytes.size());
        if (n >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(n));
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

Status sync_directory(const fs::path& path) {
    const UniqueFd fd(open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Some file systems cannot sync a folder (EINVAL); nothing more can be done there.
    if (!fd.valid() || (fsync(fd.get()) != 0 && errno != EINVAL)) {
        return tl::unexpected(file_error(ErrorKind::local_io, "sync", path, errno));
    }
    return {};
}

}  // namespace gdnctl
