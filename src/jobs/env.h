// The environment of a job on a cluster: put together out of the repository's .marin.yaml, this environment and the
// target. Names are for everybody, values for the job alone.
#pragma once

#include <string>
#include <vector>

#include "platform/context.h"
#include "services/job/job.h"
#include "target/target.h"

namespace gdnctl {

struct ClusterEnvOptions {
    bool no_secrets = false;  // nothing whose name says that it is one
    std::string git_sha;      // empty: not in a repository
    EnvList target;           // cluster_env() of the target
};

// In this order, later entries win: `env:` of .marin.yaml, HF_TOKEN and WANDB_API_KEY of this environment where that
// table has none, GIT_COMMIT, the target's. Values of secrets are registered for redaction. Errors: config
// (.marin.yaml).
Result<std::vector<JobEnv>> cluster_job_env(const ClusterEnvOptions& options, const Context& context);

// TOKEN, KEY, SECRET, PASSWORD, CREDENTIAL in the name.
bool names_a_secret(std::string_view name);

}  // namespace gdnctl
