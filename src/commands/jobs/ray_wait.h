// gdnctl ray-wait: wait for a job to end and return its verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "commands/jobs/job_options.h"
#include "jobs/place.h"

namespace gdnctl::commands::ray_wait {

struct Options {
    PlaceOptions place;
    std::optional<std::string> id;
    std::optional<std::string> match;
    double poll_s = 5.0;
    std::optional<double> timeout_s;
    bool show_logs = false;
    std::int64_t tail = 200;
    std::optional<std::string> grep;
    bool compat_exit = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::ray_wait
