// The running log of a loop, and the contents of its log commits.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "loop/engine/engine.h"
#include "loop/engine/journal.h"
#include "loop/engine/options.h"
#include "loop/memory/ledger_keep.h"
#include "loop/memory/log_compose.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

class RunningLog {
public:
    // `path`: of the log in the repository; "" if the target has none. The repository must outlive it.
    RunningLog(const GitCheckout& repository, std::filesystem::path log_dir, std::string path, StampMode mode)
        : m_repository(repository), m_log_dir(std::move(log_dir)), m_path(std::move(path)), m_mode(mode) {}

    // The entry of a settled iteration and its record, on top of the branch's current state; a note in note mode.
    // `records`: of the run. nullopt: no entry is due (the iteration failed by itself; the branch has no log, reported
    // once; the log cannot be read; it was stamped in place, or will be with the next entry). Errors: those of git;
    // local_io, conflict (stamping in place).
    Result<std::optional<LogEntry>> entry(std::span<const Record> records, int iteration);

private:
    struct Read;
    struct Stamped;
    Result<std::optional<KnownIteration>> judged(std::span<const Record> records, int iteration) const;
    Result<Read> read(const KnownIteration& known, WallTime at) const;
    Json record(const KnownIteration& known, const Read& found) const;
    Result<std::optional<LogEntry>> note(const KnownIteration& known, const Read& found) const;
    Status stamp_in_place(const KnownIteration& known, Read& found) const;
    Result<std::vector<Stamped>> stamp_earlier(std::span<const Record> records, int iteration, Read& found) const;
    LogEntry log_commit(const KnownIteration& known, const Read& found, const std::optional<ComposedLog>& own,
                        const std::vector<Stamped>& earlier) const;
    void say_missing();
    const GitCheckout& m_repository;
    std::filesystem::path m_log_dir;
    std::string m_path;
    StampMode m_mode;
    bool m_missing_said = false;
};

}  // namespace gdnctl::loop
