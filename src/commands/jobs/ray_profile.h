// gdnctl ray-profile: run the target's profile as a job.
#pragma once

#include "commands/jobs/job_options.h"
#include "jobs/run.h"
#include "jobs/submit.h"

namespace gdnctl::commands::ray_profile {

struct Options {
    PlaceOptions place;
    SubmitOptions submit;
    ProfileSettings settings;
    std::vector<std::string> profile_env;
    bool driver_on_tpu = false;
};

// The run's options: --tpu, the model's options, --profile-env.
void describe_run(cli::Args& args, Options& options);
// Error: usage (--profile-env).
Result<ProfileSettings> settings_of(const Options& options);
// Reports a run with its metrics, as JSON with this schema if requested. A result that is cut off or not a finite
// number is a failure.
Result<ExitCode> finish(std::string_view schema, const Options& options, const ProfileSettings& settings,
                        const Target& target, JobRun run, Context& context);

}  // namespace gdnctl::commands::ray_profile
