// What is submitted to a cluster: the job's environment, from the repository's .marin.yaml, this environment and the
// target, and its request. Names of variables may be shown to anyone; values are only for the job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/job_destination.h"
#include "platform/context.h"
#include "services/job/job.h"
#include "target/target.h"

namespace gdnctl {

struct ClusterEnvOptions {
    bool no_secrets = false;  // leave out variables whose name suggests a secret
    std::string git_sha;      // empty: not in a repository
    EnvList target;           // cluster_env() of the target
};

// Adds WANDB_BASE_URL if the WANDB_API_KEY in `env` is our own and is for a private server: without it, a program would
// send the key to wandb.ai. Call it last: what `env` says of the server counts. Errors: local_io (W&B's settings file
// cannot be read), config (no server is known for a private server's key).
Status add_wandb_server(std::vector<JobEnv>& env, const Env& own);

// Builds the request for a job from a target's command, with the options and limits shared by the commands that submit.

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
    std::optional<double> idle_timeout_s;  // without output; the job is stopped
    std::optional<std::string> outputs;    // the folder that gets what the job stored in its output folder
};

struct JobPlan {
    std::string kind;  // "test", "profile"
    std::string target;
    JobCommand command;
    EnvList cluster_env;                      // for jobs on a cluster
    std::optional<TargetMetric> metric = {};  // to be read from the log
    bool log_decides = false;                 // success depends on the log too, not on the job's status alone
    std::string beside = {};                  // a job whose machine to use, see JobRequest
    std::string guard = {};                   // shell text before the command of such a job; see devtpu::beside_guard()
    std::map<std::string, std::filesystem::path> added = {};  // as WorkingTree has it
    // The last line that begins with it is the job's result for this program: JobRun::data has it, and it is not
    // printed. Empty: there is none.
    std::string data_prefix = {};
    // The profile's trace, relative to the root of the working tree: JobRun::brought_back is where it is then. What the
    // tree has there is not sent along. Empty: nothing is brought back.
    std::string bring_back = {};
};

// The request that run_job() would send to a cluster or to this machine. Errors: usage, config, local_io.
Result<JobRequest> request_for(const JobPlan& plan, const SubmitOptions& options, bool on_cluster, Context& context);

// A job's command line as it may be shown: without the part that request_for() puts before it on a cluster, and with
// secrets masked.
std::string own_command(std::string_view entrypoint);

// Names of the variables, sorted, without duplicates.
std::vector<std::string> names_of(const std::vector<JobEnv>& env);

// Gives the request a new id and nonce, the only difference between two submissions of a plan.
void renew_identity(JobRequest& request, std::string_view kind, const Context& context);

}  // namespace gdnctl
