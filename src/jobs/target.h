// The target of a job, ready for the place where the job will run.
#pragma once

#include "jobs/place.h"
#include "platform/context.h"
#include "target/target.h"

namespace gdnctl {

// The target that is meant, wherever a command has to do with one: see select_target().
Result<Target> target_in_use(const Context& context);

// In a git repository with a kernel or a configuration of its own, the kernel that the binary carries is judged only
// where the target was named: --target, GDNCTL_TARGET, `target` in a configuration file. Error: usage.
Status check_embedded_kernel(const Target& target, Context& context);

// On this machine a built-in target's files are written to $STATE/targets/NAME, except for those that are there: they
// are the user's to change. Without a C compiler, and on a cluster, such a target judges kernels of this binary
// instead. Errors: local_io.
Result<Target> target_at(const Place& place, Target target, const Context& context);

}  // namespace gdnctl
