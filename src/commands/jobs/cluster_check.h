// gdnctl cluster check: what would be used of a cluster, and whether it answers.
#pragma once

#include <optional>
#include <string>

#include "commands/jobs/job_options.h"
#include "jobs/place.h"

namespace gdnctl::commands::cluster_check {

struct Options {
    std::optional<std::string> name;
    PlaceOptions place;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::cluster_check
