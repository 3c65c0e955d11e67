#include "runlog/records/store.h"

#include <cerrno>
#include <map>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/journal.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"

namespace gdnctl::runlog {

namespace fs = std::filesystem;

fs::path records_path(const fs::path& log) {
    fs::path path = log;
    if (path.extension() == ".md") path.replace_extension();
    path += ".records.jsonl";
    return path;
}

fs::path draft_path(const fs::path& log, std::int64_t iteration) {
    return log.parent_path() / fmt::format("iteration-{:03}-record.json", iteration);
}

Result<RecordLines> parse_records(std::string_view jsonl, std::string_view name) {
    const JournalContents contents = parse_journal(jsonl);
    RecordLines lines;
    if (!contents.torn.empty()) {
        lines.torn = true;
        lines.warnings.push_back(
            fmt::format("{}: the last line is torn ({} bytes) and was dropped", name, contents.torn.size()));
    }
    std::map<std::string, std::size_t> seen;
    for (std::size_t i = 0; i < contents.records.size(); ++i) {
        const std::string what = fmt::format("{}: record {}", name, i + 1);
        if (text::trim(contents.records[i]).empty()) continue;
        GDNCTL_TRY_ASSIGN(auto record, parse_json(contents.records[i], what));
        GDNCTL_TRY(check_record(record, what));
        const auto [known, first] = seen.emplace(id_of(record), lines.records.size());
        if (!first && lines.records[known->second] == record) continue;  // a union merge repeats lines
        if (!first)
            lines.warnings.push_back(fmt::format("{}: id {} came before with other content", what, known->first));
        lines.records.push_back(std::move(record));
    }
    return lines;
}

Error missing_log(const fs::path& log) {
    return {ErrorKind::usage,
            fmt::format("log file not found: {}", log.string()),
            fmt::format("`gdnctl log init --log-file {}` creates one", text::shell_quote(log.string())),
            {}};
}

Result<LogFiles> read_log_files(const fs::path& log) {
    std::error_code ec;
    if (fs::is_directory(log, ec)) return fail(ErrorKind::usage, "the log is a folder: " + log.string());
    LogFiles files;
    GDNCTL_TRY_ASSIGN(files.text, read_file_if_exists(log, k_max_file_bytes));
    const fs::path beside = records_path(log);
    GDNCTL_TRY_ASSIGN(const auto jsonl, read_file_if_exists(beside, std::size_t{1} << 30));
    if (jsonl) {
        GDNCTL_TRY_ASSIGN(files.records, parse_records(*jsonl, beside.filename().string()));
    }
    return files;
}

LogWriter::LogWriter(fs::path log, FileLock lock) : m_log(std::move(log)), m_lock(std::move(lock)) {}

Result<LogWriter> LogWriter::open(const fs::path& log, const LockWait& wait) {
    std::error_code ec;
    if (!fs::exists(log, ec)) return tl::unexpected(missing_log(log));
    if (!fs::is_regular_file(log, ec)) {
        return fail(ErrorKind::usage, log.string() + " is not a regular file, and no log can be kept in it");
    }
    fs::path folder = log.parent_path();
    if (folder.empty()) folder = ".";
    GDNCTL_TRY_ASSIGN(auto lock, FileLock::acquire_folder(folder, wait));
    LogWriter writer(log, std::move(lock));
    GDNCTL_TRY_ASSIGN(auto files, read_log_files(log));
    if (!files.text) return tl::unexpected(missing_log(log));
    for (const auto& warning : files.records.warnings) log::warning("{}", warning);
    writer.m_text = std::move(*files.text);
    writer.m_records = std::move(files.records.records);
    return writer;
}

namespace {

// The records file, open for appending, with a way to undo the append.
class Appender {
public:
    static Result<Appender> open(const fs::path& path) {
        Appender appender;
        appender.m_path = path;
        std::error_code ec;
        appender.m_created = !fs::exists(path, ec);
        appender.m_fd.reset(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666));
        struct stat status = {};
        if (!appender.m_fd.valid() || fstat(appender.m_fd.get(), &status) != 0) return appender.failed(errno);
        appender.m_size = status.st_size;
        return appender;
    }

    // One write, on disk when it returns.
    Status append(std::string_view bytes) {
        GDNCTL_TRY(drop_torn_line());
        if (const int problem = write_fully(m_fd.get(), bytes); problem != 0) {
            take_back();
            return failed(problem);
        }
        if (fsync(m_fd.get()) != 0) {
            const int problem = errno;
            take_back();
            return failed(problem);
        }
        if (m_created) return sync_directory(folder());
        return {};
    }

    void take_back() {
        if (m_created) {
            [[maybe_unused]] const int gone = unlink(m_path.c_str());
        } else {
            [[maybe_unused]] const int cut = ftruncate(m_fd.get(), m_size);
        }
    }

private:
    fs::path folder() const { return m_path.parent_path().empty() ? fs::path(".") : m_path.parent_path(); }
    tl::unexpected<Error> failed(int problem) const {
        return tl::unexpected(file_error(ErrorKind::local_io, "write", m_path, problem));
    }

    // Text after the last newline was left by a killed writer and never acknowledged. If it is a whole record, only its
    // newline is missing.
    Status drop_torn_line() {
        GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(m_path, std::size_t{1} << 30));
        if (!text || text->empty() || text->back() == '\n') return {};
        const JournalContents contents = parse_journal(*text);
        const int problem = contents.torn.empty() ? write_fully(m_fd.get(), "\n")
                            : ftruncate(m_fd.get(), static_cast<off_t>(contents.whole_bytes)) == 0 ? 0
                                                                                                   : errno;
        if (problem != 0) return failed(problem);
        struct stat status = {};
        if (fstat(m_fd.get(), &status) != 0) return failed(errno);
        m_size = status.st_size;
        return {};
    }

    fs::path m_path;
    UniqueFd m_fd;
    off_t m_size = 0;
    bool m_created = false;
};

}  // namespace

Status LogWriter::commit(std::span<const Json> new_records, std::string_view new_text,
                         const std::function<void(Step)>& on_step) {
    const auto reached = [&](Step step) {
        if (on_step) on_step(step);
    };
    reached(Step::locked);
    std::optional<Appender> appender;
    if (!new_records.empty()) {
        std::string lines;
        for (const Json& record : new_records) {
            GDNCTL_TRY(check_record(record, "record " + id_of(record)));
            lines += to_text(record) + "\n";
        }
        GDNCTL_TRY_ASSIGN(appender, Appender::open(records_path(m_log)));
        GDNCTL_TRY(appender->append(lines));
    }
    reached(Step::record_written);
    if (new_text != m_text) {
        if (auto written = atomic_replace(m_log, new_text); !written) {
            if (appender) appender->take_back();
            return written;
        }
        m_text = new_text;
    }
    m_records.insert(m_records.end(), new_records.begin(), new_records.end());
    reached(Step::log_written);
    return {};
}

}  // namespace gdnctl::runlog
