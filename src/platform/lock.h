// A lock between processes.
#pragma once

#include <chrono>
#include <filesystem>
#include <stop_token>

#include "core/result.h"
#include "platform/clock.h"
#include "platform/fs.h"

namespace gdnctl {

struct LockWait {
    std::chrono::milliseconds limit{0};  // 0: try once
    Clock* clock = nullptr;              // nullptr: system_clock()
    std::stop_token stop = {};
};

// Long enough for a child of a killed process, which shares its locks until it has executed its own program.
inline constexpr std::chrono::milliseconds k_after_a_kill{1000};

// flock() on a separate file (created with mode 0600) that names the holder and is never removed. The system releases
// the lock when the holder ends for any reason. A child made by fork() without exec shares it.
class FileLock {
public:
    // Errors: conflict ("... is held by process 123"), local_io, interrupted or terminated.
    static Result<FileLock> acquire(const std::filesystem::path& path, const LockWait& wait = {});
    // The same on an existing folder. Leaves no file behind, so it suits folders under version control. Others cannot
    // see the holder's process id.
    static Result<FileLock> acquire_folder(const std::filesystem::path& folder, const LockWait& wait = {});

    FileLock(FileLock&&) = default;
    FileLock& operator=(FileLock&& other) noexcept;
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;
    ~FileLock();

private:
    explicit FileLock(UniqueFd fd) : m_fd(std::move(fd)) {}
    static Result<FileLock> wait_for(UniqueFd fd, const std::filesystem::path& path, const LockWait& wait);
    UniqueFd m_fd;
};

}  // namespace gdnctl
