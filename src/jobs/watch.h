// Waits for a job's end, and prints its log: the last lines, the matching ones, or all of it as it grows. Bytes are
// never changed.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/line_regex.h"
#include "platform/context.h"
#include "services/job/job.h"
#include "services/job/output.h"

namespace gdnctl {

// Receives a log in pieces and passes on what should be printed. Without a regex, bytes pass unchanged.
class LogFilter {
public:
    using Out = std::function<void(std::string_view)>;

    // `hold`: before release(), keep only this many of the last (matching) lines; nullopt: pass everything on at once.
    LogFilter(const LineRegex* regex, std::optional<std::size_t> hold, Out out);

    void feed(std::string_view bytes);
    // Prints the lines kept so far; from then on everything that matches.
    void release();
    // The log has ended: a last line without newline counts as a line.
    void finish();

private:
    void line(std::string_view text);

    const LineRegex* m_regex;
    std::optional<std::size_t> m_hold;
    Out m_out;
    std::string m_partial;
    std::deque<std::string> m_held;
    std::size_t m_held_bytes = 0;
};

// Drops what Ray adds to a job's log: the line about its environment at the start, and the whole entrypoint, which may
// come in the middle of the first output.
class WithoutRayLines {
public:
    WithoutRayLines(std::string_view id, std::string_view entrypoint, LogFilter::Out out);
    void feed(std::string_view bytes);
    void finish();

private:
    std::string m_announcement, m_held;
    LogFilter::Out m_out;
    bool m_started = false;    // the log's first line is past
    bool m_announced = false;  // the entrypoint has come: the rest passes unchanged
};

// Follows a job to its end: status lines, its log, time limits and interruption.

struct WatchOptions {
    std::chrono::milliseconds poll{5000};
    std::optional<std::chrono::milliseconds> timeout;
    std::optional<std::chrono::milliseconds> idle_timeout;  // follow_job(): without a byte of the log
    bool whole_messages = true;                             // false: only the first line of a job's message
    bool quiet = false;                                     // no status lines
    bool leave_when_closed = false;                         // stop watching when stdout is closed
    bool submitted = false;      // the job is known to have existed: not finding it is a loss, not a mistake
    bool needs_log = false;      // the results of a job that has succeeded come from its log
    JobDetails* last = nullptr;  // receives the last known state of the job, whatever ends the watch
};

struct Watched {
    JobDetails details;
    bool timed_out = false;
    bool idle = false;         // timed_out because of idle_timeout
    bool log_complete = true;  // follow_job() has passed on the whole log
};

// Polls until the job has ended or the time is up; prints a status line on each change. Errors: interrupted,
// terminated; remote_missing (never seen); infrastructure (the record vanished).
Result<Watched> wait_for_job(JobBackend& backend, std::string_view id, const WatchOptions& options, Context& context);

// The same, and passes every byte of the log after `log` to `sink` exactly once, the last one before it returns. If the
// log cannot be read at the job's end, waits for it: up to 15 s, then warns; ten minutes where it is needed, then error
// infrastructure ("log incomplete").
Result<Watched> follow_job(JobBackend& backend, std::string_view id, JobLog& log, const WatchOptions& options,
                           const std::function<void(std::string_view)>& sink, Context& context);

// Reads the whole log for what it reports: counts, metrics, signs of a bad node.
Result<JobOutput> read_output(JobBackend& backend, std::string_view id, std::optional<std::size_t> tail);

// Prints the current log.
Status print_log(JobBackend& backend, std::string_view id, const LineRegex* grep, std::size_t tail,
                 const LogFilter::Out& out, Context& context);

// Writes to stdout, or to stderr if stdout is reserved for a JSON object.
LogFilter::Out log_printer(Context& context);

}  // namespace gdnctl
