// Builds the request for a job from a target's command, with the options and limits shared by the commands that submit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/place.h"
#include "services/job/job.h"
#include "target/target.h"

namespace gdnctl {

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

struct JobPlan {
    std::string kind;  // "test", "profile"
    std::string target;
    JobCommand command;
    EnvList cluster_env;                      // for jobs on a cluster
    std::optional<TargetMetric> metric = {};  // to be read from the log
    bool log_decides = false;                 // success depends on the log too, not on the job's status alone
    std::string beside = {};                  // a job whose machine to use, see JobRequest
    std::string guard = {};                   // shell text before the command of such a job; see devtpu::beside_guard()
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
