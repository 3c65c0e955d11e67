// gdnctl loop-report: a run as a report.
#pragma once

#include <optional>
#include <string>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::loop_report {

struct Options {
    std::optional<std::string> log_dir;
    std::optional<std::string> html;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::loop_report
