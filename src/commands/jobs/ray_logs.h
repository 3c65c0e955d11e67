// gdnctl ray-logs: print a job's log, or follow it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "commands/jobs/job_options.h"
#include "jobs/place.h"

namespace gdnctl::commands::ray_logs {

struct Options {
    PlaceOptions place;
    std::string id;
    std::int64_t tail = 400;
    std::optional<std::string> grep;
    bool follow = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::ray_logs
