// gdnctl sweep run
#pragma once

#include <optional>
#include <string>

#include "commands/jobs/job_options.h"
#include "platform/context.h"

namespace gdnctl::commands::sweep_run {

struct Options {
    std::string plan;
    std::optional<std::string> journal, tpu_name;
    PlaceOptions place;
    std::optional<double> budget_s;
    bool prune_vmem = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::sweep_run
