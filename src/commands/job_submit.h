// From a target's command to a running job, and to what its end means: shared by the commands that submit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/job_place.h"
#include "commands/job_watch.h"
#include "gdnctl/core/target.h"

namespace gdnctl::commands {

struct SubmitOptions {
    std::optional<std::string> submission_id;
    std::vector<std::string> env;
    std::optional<std::string> pip_requirements;
    std::optional<std::string> working_dir;
    bool keep_workdir = false;
    bool auto_stop = false;
    bool no_wait = false;
};

void describe_submit(cli::Args& args, SubmitOptions& options);

// Path of this binary.
std::string self_path();

struct JobPlan {
    std::string kind;  // "test", "profile"
    std::string target;
    JobCommand command;
};

struct JobRun {
    JobPlace place;
    JobDetails details;
    JobVerdict verdict;
    bool waited = false;
    JobOutput output;  // of a job that was waited for
};

// Submits, prints the id, and unless --no-wait follows the log to the job's end. Errors: those of the backend;
// timeout (the target's limit); interrupted, terminated (the job goes on, unless --auto-stop).
Result<JobRun> run_job(const JobPlan& plan, const SubmitOptions& options, JobBackend& backend, Context& context);

// Says on stderr how the job ended, where it did not succeed.
void report_end(const JobRun& run);

}  // namespace gdnctl::commands
