// One holder at a time, between processes.
#pragma once

#include <chrono>
#include <filesystem>
#include <stop_token>

#include "core/result.h"
#include "platform/clock.h"
#include "platform/fd.h"

namespace gdnctl {

struct LockWait {
    std::chrono::milliseconds limit{0};  // 0: one try
    Clock* clock = nullptr;              // nullptr: system_clock()
    std::stop_token stop = {};
};

// flock() on a file of its own (created with mode 0600), which says who holds it and is never removed. The system lets
// go of it when the holder dies, however it dies. A child made by fork() without exec shares it.
class FileLock {
public:
    // Errors: conflict ("... is held by process 123"), local_io, interrupted or terminated.
    static Result<FileLock> acquire(const std::filesystem::path& path, const LockWait& wait = {});
    // The same on a folder that exists: leaves no file behind, so it suits folders that people keep under git. The
    // holder's process id is not known to others.
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
