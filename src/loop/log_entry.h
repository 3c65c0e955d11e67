// The running log of a loop: what its log commits hold.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "gdnctl/core/result.h"
#include "gdnctl/services/git_checkout.h"
#include "loop/engine.h"
#include "loop/journal.h"
#include "loop/ledger_keep.h"

namespace gdnctl::loop {

class RunningLog {
public:
    // `path`: of the log in the repository, "" where the target names none. The repository must outlive it.
    RunningLog(const GitCheckout& repository, std::filesystem::path log_dir, std::string path)
        : m_repository(repository), m_log_dir(std::move(log_dir)), m_path(std::move(path)) {}

    // The entry of an iteration that is settled, and its record, on top of what the branch has now. `records`: of the
    // run. nullopt: none is due (an iteration that failed by itself, no log in the branch, which is said once, a log
    // that cannot be read). Errors: those of git.
    Result<std::optional<LogEntry>> entry(std::span<const Record> records, int iteration);

private:
    struct Read;
    Result<Read> read(const KnownIteration& known) const;
    void say_missing();
    const GitCheckout& m_repository;
    std::filesystem::path m_log_dir;
    std::string m_path;
    bool m_missing_said = false;
};

}  // namespace gdnctl::loop
