// A running log on disk: the Markdown file and, beside it, the records (`<log without .md>.records.jsonl`).
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
// `iteration-012-record.json` beside the log: a record that is still being filled in.
std::filesystem::path draft_path(const std::filesystem::path& log, std::int64_t iteration);

struct RecordLines {
    std::vector<Json> records;          // in file order, superseded ones included
    std::vector<std::string> warnings;  // a torn last line was dropped; a line that came twice with other content
    bool torn = false;
};

// Pure. Errors: bad_input for a line that is no record, with its number.
Result<RecordLines> parse_records(std::string_view jsonl, std::string_view name);

struct LogFiles {
    std::optional<std::string> text;  // nullopt: no such log
    RecordLines records;
};
// Both files as they are now, without a lock. Errors: local_io, bad_input; usage for a folder.
Result<LogFiles> read_log_files(const std::filesystem::path& log);

// The error for a log that is not there, with the command that makes one.
Error missing_log(const std::filesystem::path& log);

// One writer's turn at a log. Other writers wait; the lock leaves no file behind and ends with the process.
class LogWriter {
public:
    enum class Step { locked, record_written, log_written };

    // Waits for its turn, then reads both files. Errors: usage (no such log), conflict (someone else has held it for
    // `wait.limit`), local_io, bad_input.
    static Result<LogWriter> open(const std::filesystem::path& log, const LockWait& wait);

    const std::filesystem::path& log() const { return m_log; }
    const std::string& text() const { return m_text; }
    const std::vector<Json>& records() const { return m_records; }

    // Appends the records with one write, then replaces the log's text. On an error both files are as before. Killed
    // between the two, the records are there without their entries: the next append or render writes those.
    // `on_step` is called after each step, for tests that end the process there.
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
