// Stops jobs on any backend. A cluster starts a waiting job before it stops it, so stops that are still pending are
// kept in $STATE/given_up.jsonl until the jobs have ended; every later command on that cluster asks again.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "platform/context.h"
#include "services/job/job.h"

namespace gdnctl {

// Records the job. If writing fails, a warning is logged.
void remember_pending_stop(const JobBackend& backend, std::string_view id, Context& context);

// Stops this backend's given-up jobs that have started since, and forgets those that have ended. Does nothing if there
// are none.
void retry_pending_stops(JobBackend& backend, Context& context);

// The session in which the job was submitted from this machine, according to $STATE/jobs.jsonl; nullopt: it was not.
std::optional<std::string> remembered_session(std::string_view id, const Context& context);

// Stopping a job on any backend.

struct StopOptions {
    bool wait = false;                                  // wait for the job's end
    std::optional<std::chrono::milliseconds> patience;  // how long to wait; nullopt: no limit
};

struct StoppedJob {
    bool stopped = false;  // this call stopped it; false: it had already ended
    JobDetails details;    // as they are now
};

// A job that is still waiting on a cluster, or has not ended in time, is recorded as given up. Errors: those of the
// backend; timeout (it has not ended in time); interrupted, terminated.
Result<StoppedJob> stop_job(JobBackend& backend, const std::string& id, const StopOptions& options, Context& context);

}  // namespace gdnctl
