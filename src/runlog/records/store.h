// A running log on disk: the Markdown file and its records (`<log without .md>.records.jsonl`).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "platform/lock.h"

namespace gdnctl::runlog {

std::filesystem::path records_path(const std::filesystem::path& log);
// `iteration-012-record.json` in the log's folder: a record that is still being filled in.
std::filesystem::path draft_path(const std::filesystem::path& log, std::int64_t iteration);

struct RecordLines {
    std::vector<Json> records;          // in file order, superseded ones included
    std::vector<std::string> warnings;  // a dropped torn last line; an id that occurs twice with different content
    bool torn = false;
};

// Pure. Errors: bad_input for a line that is not a record, with its number.
Result<RecordLines> parse_records(std::string_view jsonl, std::string_view name);

struct LogFiles {
    std::optional<std::string> text;  // nullopt: no such log
    RecordLines records;
};
// Both files as they are now, without a lock. Errors: local_io, bad_input; usage for a folder.
Result<LogFiles> read_log_files(const std::filesystem::path& log);

// The error for a missing log, with the command that creates one.
Error missing_log(const std::filesystem::path& log);

// Exclusive write access to a log. Other writers wait. The lock leaves no file behind and ends with the process.
class LogWriter {
public:
    enum class Step { locked, record_written, log_written };

    // Waits for the lock, then reads both files. Errors: usage (no such log), conflict (another writer held it for
    // `wait.limit`), local_io, bad_input.
    static Result<LogWriter> open(const std::filesystem::path& log, const LockWait& wait);

    const std::filesystem::path& log() const { return m_log; }
    const std::string& text() const { return m_text; }
    const std::vector<Json>& records() const { return m_records; }

    // Appends the records with one write, then replaces the log's text. On an error, both files are as before. If the
    // process is killed between the two, the records exist without their entries, and the next append or render writes
    // those. `on_step` is called after each step, for tests that end the process there.
    Status commit(std::span<const Json> new_records, std::string_view new_text,
                  const std::function<void(Step)>& on_step = {});

private:
    LogWriter(std::filesystem::path log, FileLock lock);
    std::filesystem::path m_log;
    FileLock m_lock;
    std::string m_text;
    std::vector<Json> m_records;
};

}  // namespace gdnctl::runlog
