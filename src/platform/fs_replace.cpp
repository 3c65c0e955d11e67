// atomic_replace(): all files that matter are rewritten through it.
#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/fd.h"
#include "platform/fs.h"
#include "platform/replace.h"

namespace gdnctl {

namespace fs = std::filesystem;

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

}  // namespace

namespace {

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

}  // namespace gdnctl
