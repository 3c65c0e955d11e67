// One loop at a time on a repository, and on a log directory.
#pragma once

#include <filesystem>
#include <string>

#include "core/result.h"
#include "core/time.h"
#include "platform/lock.h"

namespace gdnctl::loop {

// Held as long as it lives; the system lets go of it however its holder dies.
class LoopLock {
public:
    // Error conflict (exit 7): another loop has one of the two; the message has its process, when it began and where it
    // writes. local_io: a lock cannot be made.
    static Result<LoopLock> acquire(const std::filesystem::path& log_dir, const std::filesystem::path& git_common_dir,
                                    WallTime now);

private:
    LoopLock(FileLock log_dir, FileLock repository)
        : m_log_dir(std::move(log_dir)), m_repository(std::move(repository)) {}
    FileLock m_log_dir, m_repository;
};

}  // namespace gdnctl::loop
