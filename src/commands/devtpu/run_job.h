// A target's test or profile, or any command, on the host of a held TPU, as the same result that a job of its own has.
#pragma once

#include "commands/devtpu/options.h"
#include "jobs/run.h"

namespace gdnctl::commands {

struct HeldRunOptions {
    devtpu_options::Sync sync;
    devtpu_options::Run run;
};

// As a job beside the holder; the tree travels with it.
Result<JobRun> run_beside(const FoundHold& hold, const JobPlan& plan, const HeldRunOptions& options, Context& context);

// By the road to the host, or as above.
Result<JobRun> run_held(const FoundHold& hold, Via via, const JobPlan& plan, const HeldRunOptions& options,
                        Context& context);

}  // namespace gdnctl::commands
