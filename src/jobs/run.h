// From the request for a job to a running one, and to what its end means: shared by the commands that submit.
#pragma once

#include <optional>
#include <string_view>

#include "jobs/metric.h"
#include "jobs/submit.h"
#include "jobs/watch.h"

namespace gdnctl {

struct JobRun {
    JobPlace place;
    JobDetails details;
    JobVerdict verdict;
    JobRequest request;  // the last one that was submitted
    bool submitted = true;
    bool waited = false;
    JobOutput output;                    // of a job that was waited for
    std::optional<MetricReader> metric;  // the plan's, of the same log
    // What ended the watch before the job's end, or the submission before its own: the command's error, once it has
    // reported what is known.
    std::optional<Error> cut_short;
};

// Submits, prints the id, and unless --no-wait follows the log to the job's end; with --resubmit again, under a new id,
// while the job is lost to the cluster's own faults. Running out of time is a verdict (--timeout: the job goes on; the
// target's limit: it is stopped). Errors: those of a submission; what comes later, and a signal at any time, is in
// `cut_short` (after a signal the job goes on, unless --auto-stop).
Result<JobRun> run_job(const JobPlan& plan, const SubmitOptions& options, JobBackend& backend, Context& context);

// backend, ..., end_time, url, appended to `object`; status is null where nothing was submitted.
void put_run(Json& object, const JobRun& run);

// Ended by a signal.
bool is_interruption(const Error& error);
// What an error that ended the watch says about the job: `infra` and `auth`, else `none`.
FailureClass failure_of(const Error& error);

// The commands that go on where this one leaves the job alone.
void show_next_commands(const JobBackend& backend, std::string_view id);

// Says on stderr how the job ended, where it did not succeed.
void report_end(const JobRun& run);

}  // namespace gdnctl
