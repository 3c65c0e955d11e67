// gdnctl init marin
#pragma once

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::init_marin {

struct Options {
    bool dry_run = false;
    bool force = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::init_marin
