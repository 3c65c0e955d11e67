// gdnctl ray-stop: ask a job to stop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "commands/jobs/job_options.h"
#include "jobs/place.h"

namespace gdnctl::commands::ray_stop {

struct Options {
    PlaceOptions place;
    std::string id;
    bool wait = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::ray_stop
