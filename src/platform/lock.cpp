#include "platform/lock.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "platform/fs.h"
#include "platform/signals.h"

namespace gdnctl {

namespace {

// The process id that the holder wrote; empty if it has not done so yet.
std::string holder_of(int fd) {
    std::array<char, 24> buffer{};
    const ssize_t n = pread(fd, buffer.data(), buffer.size(), 0);
    std::string holder(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    const auto end = std::find_if(holder.begin(), holder.end(), [](unsigned char c) { return std::isdigit(c) == 0; });
    holder.erase(end, holder.end());
    return holder;
}

Error held_error(const std::filesystem::path& path, int fd) {
    const std::string holder = holder_of(fd);
    return {ErrorKind::conflict,
            holder.empty() ? fmt::format("{} is held by another process", path.string())
                           : fmt::format("{} is held by process {}", path.string(), holder),
            "wait for it to end, or stop it, then run the command again",
            {}};
}

void write_holder(int fd) {
    const std::string text = fmt::format("{}\n", getpid());
    // For messages only: a full disk must not prevent locking.
    [[maybe_unused]] const int cut = ftruncate(fd, 0);
    [[maybe_unused]] const ssize_t n = pwrite(fd, text.data(), text.size(), 0);
}

}  // namespace

Result<FileLock> FileLock::acquire(const std::filesystem::path& path, const LockWait& wait) {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "open the lock", path, errno));
    GDNCTL_TRY_ASSIGN(FileLock lock, wait_for(std::move(fd), path, wait));
    write_holder(lock.m_fd.get());
    return lock;
}

Result<FileLock> FileLock::acquire_folder(const std::filesystem::path& folder, const LockWait& wait) {
    UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "lock", folder, errno));
    return wait_for(std::move(fd), folder, wait);
}

Result<FileLock> FileLock::wait_for(UniqueFd fd, const std::filesystem::path& path, const LockWait& wait) {
    Clock& clock = wait.clock != nullptr ? *wait.clock : system_clock();
    const auto deadline = clock.monotonic() + wait.limit;
    // Polls, because a blocking flock() has no time limit and cannot be stopped by a token.
    std::chrono::milliseconds pause{5};
    constexpr std::chrono::milliseconds k_longest_pause{100};
    for (;;) {
        if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) break;
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return tl::unexpected(file_error(ErrorKind::local_io, "lock", path, errno));
        if (clock.monotonic() >= deadline) return tl::unexpected(held_error(path, fd.get()));
        if (!clock.sleep_for(pause, wait.stop)) return tl::unexpected(stopped_error());
        pause = std::min(pause * 2, k_longest_pause);
    }
    return FileLock(std::move(fd));
}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
    FileLock previous(std::move(m_fd));  // releases the lock that this object held
    m_fd = std::move(other.m_fd);
    return *this;
}

FileLock::~FileLock() {
    // Remove the name first, so that nobody reads the id of a process that no longer holds the lock.
    if (m_fd.valid()) [[maybe_unused]]
        const int cut = ftruncate(m_fd.get(), 0);
}

}  // namespace gdnctl
