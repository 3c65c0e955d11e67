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
    bool no_secrets = false;
    std::int64_t resubmit = 0;
    std::optional<double> timeout_s;
};

void describe_submit(cli::Args& args, SubmitOptions& options);

// Path of this binary.
std::string self_path();

struct JobPlan {
    std::string kind;  // "test", "profile"
    std::string target;
    JobCommand command;
    EnvList cluster_env;  // of the target, on a cluster
};

// The request that run_job() would send to a cluster or to this machine. Errors: usage, config, local_io.
Result<JobRequest> request_for(const JobPlan& plan, const SubmitOptions& options, bool on_cluster, Context& context);

// A job's command line without what request_for() puts before it on a cluster.
std::string_view own_command(std::string_view entrypoint);

// Names of the variables, each once, sorted.
std::vector<std::string> names_of(const std::vector<JobEnv>& env);

struct JobRun {
    JobPlace place;
    JobDetails details;
    JobVerdict verdict;
    JobRequest request;  // the last one that was submitted
    bool waited = false;
    JobOutput output;  // of a job that was waited for
};

// Submits, prints the id, and unless --no-wait follows the log to the job's end; with --resubmit again, under a new id,
// while the job is lost to the cluster's own faults. Errors: those of the backend; timeout (--timeout, or the target's
// limit); interrupted, terminated (the job goes on, unless --auto-stop).
Result<JobRun> run_job(const JobPlan& plan, const SubmitOptions& options, JobBackend& backend, Context& context);

// The commands that go on where this one leaves the job alone.
void show_next_commands(const JobBackend& backend, std::string_view id);

// Says on stderr how the job ended, where it did not succeed.
void report_end(const JobRun& run);

}  // namespace gdnctl::commands
