// The target of a job, prepared for the place where the job will run.
#pragma once

#include "jobs/place.h"
#include "platform/context.h"
#include "target/target.h"

namespace gdnctl {

// A job of the embedded example says nothing about the user's own code. It runs if the target was named (--target,
// GDNCTL_TARGET, or `target` in a configuration file); unnamed, only on this machine, outside any repository, and if no
// configuration file defines another target. Error: usage.
Status check_target_is_named(const Target& target, bool here, const Context& context);
// For the place that the options select. Errors: those of choose_place(), too.
Status check_target_is_named(const Target& target, const PlaceOptions& options, Context& context);

// On this machine, marks the target as `here` and writes a built-in target's files to $STATE/targets/NAME, except for
// existing ones, which the user may have changed. Without a C compiler, and on a cluster, such a target judges kernels
// of this binary instead. Errors: local_io.
Result<Target> target_at(const Place& place, Target target, const Context& context);

}  // namespace gdnctl
