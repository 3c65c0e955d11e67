// Stopping a job on any backend.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "platform/context.h"
#include "services/job/job.h"

namespace gdnctl {

struct StopOptions {
    bool wait = false;                                  // for the job's end
    std::optional<std::chrono::milliseconds> patience;  // of that; nullopt: as long as it takes
};

struct StoppedJob {
    bool stopped = false;  // by this call; false: it had ended already
    JobDetails details;    // as they are now
};

// A job that waits on a cluster, or has not ended in time, is remembered as given up. Errors: those of the backend;
// timeout (it has not ended in time); interrupted, terminated.
Result<StoppedJob> stop_job(JobBackend& backend, const std::string& id, const StopOptions& options, Context& context);

}  // namespace gdnctl
