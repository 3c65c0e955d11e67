// Allows one loop at a time per repository and per log directory.
#pragma once

#include <filesystem>
#include <string>

#include "core/result.h"
#include "core/time.h"
#include "platform/lock.h"

namespace gdnctl::loop {

// Holds the locks while it lives; the system releases them however the process ends.
class LoopLock {
public:
    // Error conflict (exit 7): another loop holds one of the two locks; the message names its process, start time and
    // log directory. local_io: a lock file cannot be created.
    static Result<LoopLock> acquire(const std::filesystem::path& log_dir, const std::filesystem::path& git_common_dir,
                                    WallTime now);

private:
    LoopLock(FileLock log_dir, FileLock repository)
        : m_log_dir(std::move(log_dir)), m_repository(std::move(repository)) {}
    FileLock m_log_dir, m_repository;
};

}  // namespace gdnctl::loop
