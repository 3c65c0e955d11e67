// Follows a job to its end: status lines, its log, time limits and interruption.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "jobs/log.h"
#include "platform/context.h"
#include "services/job/job.h"
#include "services/job/output.h"

namespace gdnctl {

struct WatchOptions {
    std::chrono::milliseconds poll{5000};
    std::optional<std::chrono::milliseconds> timeout;
    bool whole_messages = true;      // false: only the first line of a job's message
    bool quiet = false;              // no status lines
    bool leave_when_closed = false;  // stop watching when stdout is closed
    bool submitted = false;          // the job is known to have existed: not finding it is a loss, not a mistake
    bool needs_log = false;          // the results of a job that has succeeded come from its log
    JobDetails* last = nullptr;      // receives the last known state of the job, whatever ends the watch
};

struct Watched {
    JobDetails details;
    bool timed_out = false;
    bool log_complete = true;  // follow_job() has passed on the whole log
};

// `[YYYY-mm-dd HH:MM:SS] <id> status=<S> <message>` on stderr.
void print_status(Context& context, const JobDetails& details, bool whole_message);

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
