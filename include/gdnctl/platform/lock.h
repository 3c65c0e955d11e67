// One holder at a time, between processes.
#pragma once

#include <chrono>
#include <filesystem>
#include <stop_token>

#include "gdnctl/core/result.h"
#include "gdnctl/platform/clock.h"
#include "gdnctl/platform/fd.h"

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

    FileLock(FileLock&&) = default;
    FileLock& operator=(FileLock&& other) noexcept;
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;
    ~FileLock();

private:
    explicit FileLock(UniqueFd fd) : m_fd(std::move(fd)) {}
    UniqueFd m_fd;
};

}  // namespace gdnctl
