// gdnctl ray-profile: run the target's profile as a job.
#pragma once

#include "commands/jobs/job_options.h"
#include "jobs/submit.h"

namespace gdnctl::commands::ray_profile {

struct Options {
    PlaceOptions place;
    SubmitOptions submit;
    ProfileSettings settings;
    std::vector<std::string> profile_env;
    bool driver_on_tpu = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::ray_profile
