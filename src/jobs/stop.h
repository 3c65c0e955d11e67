// Stopping a job on any backend.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "platform/context.h"
#include "services/job/job.h"

namespace gdnctl {

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
