// gdnctl config init
#pragma once

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::config_init {

struct Options {
    bool force = false;
    bool user = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::config_init
