// gdnctl completion
#pragma once

#include <string>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::completion {

struct Options {
    std::string shell;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::completion
