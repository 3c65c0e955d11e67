#include "platform/fs.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

void UniqueFd::reset(int fd) {
    const int saved_errno = errno;
    if (m_fd >= 0) close(m_fd);
    errno = saved_errno;
    m_fd = fd;
}

// Folders and paths that are safe to use.

namespace {

Status make_directories(const fs::path& path) {
    struct stat facts{};
    if (stat(path.c_str(), &facts) == 0) return {};
    const fs::path parent = path.parent_path();
    if (!parent.empty() && parent != path) GDNCTL_TRY(make_directories(parent));
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
        return tl::unexpected(file_error(ErrorKind::local_io, "create the folder", path, errno));
    }
    return {};
}

Error unsafe_path(std::string_view path, std::string_view why) {
    return {ErrorKind::local_io, fmt::format("unsafe path '{}': {}", path, why), {}, {}};
}

}  // namespace

Status make_private_directory(const fs::path& path, std::string_view hint) {
    // A trailing slash would make the last component empty.
    const fs::path folder = path.has_filename() ? path : path.parent_path();
    GDNCTL_TRY(make_directories(folder));
    struct stat facts{};
    if (stat(folder.c_str(), &facts) != 0) {
        return tl::unexpected(file_error(ErrorKind::local_io, "use the folder", folder, errno));
    }
    if (!S_ISDIR(facts.st_mode)) {
        return tl::unexpected(file_error(ErrorKind::local_io, "use the folder", folder, ENOTDIR));
    }
    if (facts.st_uid != geteuid()) {
        return fail(ErrorKind::local_io,
                    fmt::format("will not use the folder {}: it belongs to user {}, not to user {}", folder.string(),
                                facts.st_uid, geteuid()),
                    std::string(hint));
    }
    if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return fail(ErrorKind::local_io,
                    fmt::format("will not use the folder {}: others may write to it (mode {:04o})", folder.string(),
                                facts.st_mode & 07777U),
                    fmt::format("chmod go-w '{}'", folder.string()));
    }
    return {};
}

bool is_inside(const fs::path& root, const fs::path& path) {
    const fs::path relative = path.lexically_normal().lexically_relative(root.lexically_normal());
    return !relative.empty() && *relative.begin() != "..";
}

Result<fs::path> join_inside(const fs::path& root, std::string_view relative) {
    if (relative.empty()) return tl::unexpected(unsafe_path(relative, "it is empty"));
    if (relative.find('\0') != std::string_view::npos) {
        return tl::unexpected(unsafe_path(relative.substr(0, relative.find('\0')), "it contains a NUL byte"));
    }
    const fs::path wanted(relative);
    if (wanted.is_absolute()) return tl::unexpected(unsafe_path(relative, "it is absolute"));
    std::error_code problem;
    const fs::path real_root = fs::weakly_canonical(root, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "resolve", root, problem.value()));
    for (const fs::path& part : wanted) {
        if (part == "..") return tl::unexpected(unsafe_path(relative, "it contains '..'"));
    }
    const fs::path real = fs::weakly_canonical(real_root / wanted, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "resolve", wanted, problem.value()));
    if (!is_inside(real_root, real)) {
        return tl::unexpected(unsafe_path(relative, "a symbolic link leads out of " + root.string()));
    }
    return root / wanted;
}

std::optional<fs::path> find_upward(const fs::path& start, std::string_view name) {
    fs::path folder = start.lexically_normal();
    for (;;) {
        struct stat facts{};
        fs::path candidate = folder / name;
        if (stat(candidate.c_str(), &facts) == 0) return candidate;
        fs::path parent = folder.parent_path();
        if (parent == folder || parent.empty()) return std::nullopt;
        folder = std::move(parent);
    }
}

std::optional<std::filesystem::path> find_repository_root(const std::filesystem::path& from) {
    std::error_code ignored;
    for (std::filesystem::path at = from.lexically_normal();; at = at.parent_path()) {
        if (std::filesystem::exists(at / ".git", ignored)) return at;
        if (!at.has_relative_path()) return std::nullopt;
    }
}

// atomic_replace(): all files that matter are rewritten through it.

namespace {

// Follows a chain of symbolic links to its end, which need not exist.
Result<fs::path> follow_links(fs::path path) {
    constexpr int k_most_links = 40;  // as the kernel's own limit
    for (int i = 0; i < k_most_links; ++i) {
        std::error_code problem;
        if (!fs::is_symlink(fs::symlink_status(path, problem))) return path;
        const fs::path target = fs::read_symlink(path, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "follow", path, problem.value()));
        path = target.is_absolute() ? target : path.parent_path() / target;
    }
    return tl::unexpected(file_error(ErrorKind::local_io, "follow", path, ELOOP));
}

bool is_same_file(int fd, const fs::path& path) {
    struct stat open_one{};
    struct stat named{};
    return fstat(fd, &open_one) == 0 && lstat(path.c_str(), &named) == 0 && open_one.st_ino == named.st_ino &&
           open_one.st_dev == named.st_dev;
}

struct Temporary {
    fs::path path;
    UniqueFd fd;
};

// Creates a file next to `target` and locks it while its writer lives. A file whose lock is free was left by a killed
// process and is removed.
Result<Temporary> make_temporary(const fs::path& target) {
    constexpr int k_most_tries = 200;
    for (int i = 0, number = 0; i < k_most_tries; ++i) {
        const fs::path path =
            target.parent_path() / fmt::format(".{}.gdnctl-tmp{}", target.filename().string(), number);
        UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
        if (fd.valid()) {
            if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0 ? is_same_file(fd.get(), path) : errno != EWOULDBLOCK) {
                return Temporary{path, std::move(fd)};
            }
            continue;  // another process removed it as a leftover before it was locked
        }
        if (errno != EEXIST) return tl::unexpected(file_error(ErrorKind::local_io, "write", target, errno));
        const UniqueFd old(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
        const bool left_over = old.valid() && flock(old.get(), LOCK_EX | LOCK_NB) == 0 && is_same_file(old.get(), path);
        if (!left_over || unlink(path.c_str()) != 0) ++number;
    }
    return fail(ErrorKind::conflict, fmt::format("cannot write {}: too many others are writing it", target.string()));
}

// Writes the content and attributes of the new file; 0 or errno.
int fill(int fd, std::string_view bytes, const struct stat* old, mode_t mode) {
    if (old != nullptr && (old->st_uid != geteuid() || old->st_gid != getegid())) {
        [[maybe_unused]] const int kept =
            fchown(fd, old->st_uid, old->st_gid);  // only root may do this; otherwise nothing is lost
    }
    if (fchmod(fd, old != nullptr ? old->st_mode & 07777U : mode) != 0) return errno;
    if (const int problem = write_fully(fd, bytes); problem != 0) return problem;
    return fsync(fd) == 0 ? 0 : errno;
}

mode_t less_umask(mode_t mode) {
    const mode_t mask = umask(077);  // umask() cannot be read without setting it; set the stricter value for that
                                     // instant
    umask(mask);
    return mode & ~mask;
}

Status write_plainly(const fs::path& path, std::string_view bytes) {
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    const int problem = fd.valid() ? write_fully(fd.get(), bytes) : errno;
    if (problem != 0) return tl::unexpected(file_error(ErrorKind::local_io, "write", path, problem));
    return {};
}

// Returns the file that was replaced; empty: it was written to directly.
Result<fs::path> replace(const fs::path& path, std::string_view bytes, mode_t mode) {
    GDNCTL_TRY_ASSIGN(const fs::path target, follow_links(path));
    struct stat old{};
    const bool exists = stat(target.c_str(), &old) == 0;
    if (exists && S_ISDIR(old.st_mode)) {
        return tl::unexpected(file_error(ErrorKind::local_io, "write", path, EISDIR));
    }
    if (exists && !S_ISREG(old.st_mode)) {
        GDNCTL_TRY(write_plainly(target, bytes));
        return fs::path();
    }
    // rename() would replace a file even if it is write-protected.
    if (exists && access(target.c_str(), W_OK) != 0) {
        return tl::unexpected(file_error(ErrorKind::local_io, "write", path, errno));
    }
    GDNCTL_TRY_ASSIGN(const Temporary temporary, make_temporary(target));
    int problem = fill(temporary.fd.get(), bytes, exists ? &old : nullptr, less_umask(mode));
    if (problem == 0 && std::rename(temporary.path.c_str(), target.c_str()) != 0) problem = errno;
    if (problem != 0) {
        unlink(temporary.path.c_str());
        return tl::unexpected(file_error(ErrorKind::local_io, "write", path, problem));
    }
    return target;
}

}  // namespace

Status atomic_replace(const fs::path& path, std::string_view bytes, mode_t mode) {
    GDNCTL_TRY_ASSIGN(const fs::path target, replace(path, bytes, mode));
    return target.empty() ? Status() : sync_directory(target.parent_path());
}

Status replace_whole(const fs::path& path, std::string_view bytes, mode_t mode) {
    return replace(path, bytes, mode).map([](const fs::path&) {});
}

Result<TempFolder> TempFolder::make(const std::filesystem::path& base, std::string_view name) {
    std::string path = (base / name).string() + ".XXXXXX";
    if (mkdtemp(path.data()) == nullptr) {
        return tl::unexpected(file_error(ErrorKind::local_io, "create a folder in", base, errno));
    }
    TempFolder folder;
    folder.m_path = path;
    return folder;
}

TempFolder::~TempFolder() {
    std::error_code ignored;
    if (!m_path.empty()) std::filesystem::remove_all(m_path, ignored);
}

}  // namespace gdnctl
