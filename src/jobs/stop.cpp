#include "jobs/stop.h"

#include <algorithm>

#include "core/log.h"
#include "core/time.h"
#include "jobs/given_up.h"
#include "jobs/watch.h"

namespace gdnctl {

namespace {

// A waiting job is stopped only after it has started.
void remember_unless_over(const JobBackend& backend, const JobDetails& details, Context& context) {
    if (details.state != JobState::pending) return;
    log::info("job {} is still waiting; this machine's next gdnctl command on the cluster stops it when it starts",
              details.submission_id);
    remember_given_up(backend, details.submission_id, context);
}

Result<JobDetails> wait_for_end(JobBackend& backend, const std::string& id, const StopOptions& options,
                                Context& context) {
    WatchOptions watch;
    watch.poll = std::max(std::chrono::milliseconds(200), backend.pace().log);
    watch.timeout = options.patience;
    watch.whole_messages = false;
    watch.submitted = true;
    auto watched = wait_for_job(backend, id, watch, context);
    if (watched && !watched->timed_out) return std::move(watched->details);
    if (watched || watched.error().kind != ErrorKind::remote_missing) remember_given_up(backend, id, context);
    if (!watched) return tl::unexpected(std::move(watched).error());
    return fail(ErrorKind::timeout,
                "job " + id + " has not ended within " + format_duration(*options.patience) + " of being stopped");
}

}  // namespace

Result<StoppedJob> stop_job(JobBackend& backend, const std::string& id, const StopOptions& options, Context& context) {
    StoppedJob job;
    GDNCTL_TRY_ASSIGN(job.stopped, backend.stop(id));
    GDNCTL_TRY_ASSIGN(job.details, backend.details(id));
    if (job.stopped) {
        log::info("Job {} stop requested", id);
    } else {
        log::info("Job {} had already ended ({})", id, status_of(job.details));
    }
    if (!is_terminal(job.details.state)) {
        if (!options.wait) {
            remember_unless_over(backend, job.details, context);
        } else {
            GDNCTL_TRY_ASSIGN(job.details, wait_for_end(backend, id, options, context));
        }
    }
    see_to_given_up(backend, context);
    return job;
}

}  // namespace gdnctl
