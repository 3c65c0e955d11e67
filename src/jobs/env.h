// The environment of a job on a cluster, from the repository's .marin.yaml, this environment and the target. Names may
// be shown to anyone; values are only for the job.
#pragma once

#include <string>
#include <vector>

#include "platform/context.h"
#include "services/job/job.h"
#include "target/target.h"

namespace gdnctl {

struct ClusterEnvOptions {
    bool no_secrets = false;  // leave out variables whose name suggests a secret
    std::string git_sha;      // empty: not in a repository
    EnvList target;           // cluster_env() of the target
};

// In this order, later entries win: `env:` of .marin.yaml, HF_TOKEN and WANDB_API_KEY of this environment unless that
// table has them, GIT_COMMIT, the target's variables. Secret values are registered for redaction. Errors: config
// (.marin.yaml).
Result<std::vector<JobEnv>> cluster_job_env(const ClusterEnvOptions& options, const Context& context);

// Adds WANDB_BASE_URL if the WANDB_API_KEY in `env` is our own and is for a private server: without it, a program would
// send the key to wandb.ai. Call it last: what `env` says of the server counts. Errors: local_io (W&B's settings file
// cannot be read), config (no server is known for a private server's key).
Status add_wandb_server(std::vector<JobEnv>& env, const Env& own);

// The name contains TOKEN, KEY, SECRET, PASSWORD or CREDENTIAL.
bool names_a_secret(std::string_view name);

}  // namespace gdnctl
