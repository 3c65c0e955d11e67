// The target of a job, prepared for the place where the job will run.
#pragma once

#include "jobs/place.h"
#include "platform/context.h"
#include "target/target.h"

namespace gdnctl {

// In a git repository with its own kernel or configuration, the embedded kernel is judged only if the target was named
// explicitly: --target, GDNCTL_TARGET, or `target` in a configuration file. Error: usage.
Status check_embedded_kernel(const Target& target, Context& context);

// On this machine, writes a built-in target's files to $STATE/targets/NAME, except for existing ones, which the user
// may have changed. Without a C compiler, and on a cluster, such a target judges kernels of this binary instead.
// Errors: local_io.
Result<Target> target_at(const Place& place, Target target, const Context& context);

}  // namespace gdnctl
