// gdnctl loop-status: how a loop stands, once or as it goes on.
#pragma once

#include <optional>
#include <string>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::loop_status {

struct Options {
    std::optional<std::string> log_dir;
    bool watch = false;
    bool rebuild_state = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::loop_status
