// Runs a target's test or profile, or any command, on the host of a held TPU, with the same kind of result as a job.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "jobs/hold.h"
#include "jobs/hold_run.h"
#include "jobs/run.h"
#include "jobs/target_job.h"

namespace gdnctl {

// Which files of the working copy to copy to the host first.
struct HeldSync {
    std::optional<std::string> sync_path;  // nullopt: the repository
    bool no_sync = false;
};
// Error: usage (no such folder).
Result<std::filesystem::path> sync_root(const HeldSync& options, const Context& context);

struct HeldRun {
    std::vector<std::string> env;  // KEY=VALUE, or KEY to pass on its value
    bool forward_all_env = false;
    Via via = Via::automatic;
    std::optional<double> timeout_s, idle_timeout_s;
};
Result<std::vector<JobEnv>> extra_env(const HeldRun& options, const Context& context);
std::chrono::milliseconds limit_of(const std::optional<double>& seconds);

struct HeldRunOptions {
    HeldSync sync;
    HeldRun run;
};

// Finds the hold and, unless told not to, updates the tree on its host. Jobs take the tree along themselves.
Result<FoundHold> ready_hold(const std::string& tpu_name, const PlaceOptions& place, const HeldSync& sync, Via& via,
                             Context& context);

// Like plan_test() and plan_profile(), for the host of the hold. A run of style `levanter` stores its data under
// `marin_prefix`; nullopt: MARIN_PREFIX of this environment, else the bucket of the TPU's region, since a cache in
// another region is refused.
Result<PlannedJob> plan_held_test(Target target, const TestSelection& selection, const FoundHold& hold,
                                  Context& context);
Result<PlannedJob> plan_held_profile(Target target, ProfileSettings settings,
                                     const std::optional<std::string>& marin_prefix, const FoundHold& hold, Via via,
                                     Context& context);

// Runs it as a job next to the holder; the tree is sent along.
Result<JobRun> run_beside(const FoundHold& hold, const JobPlan& plan, const HeldRunOptions& options, Context& context);

// Runs it over the road to the host, or as above.
Result<JobRun> run_held(const FoundHold& hold, Via via, const JobPlan& plan, const HeldRunOptions& options,
                        Context& context);

}  // namespace gdnctl
