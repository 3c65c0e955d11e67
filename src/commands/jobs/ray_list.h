// gdnctl ray-list: the jobs that a backend knows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "commands/jobs/job_options.h"
#include "jobs/place.h"

namespace gdnctl::commands::ray_list {

struct Options {
    PlaceOptions place;
    bool mine = false;
    std::optional<JobState> status;
    std::int64_t limit = 50;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::ray_list
