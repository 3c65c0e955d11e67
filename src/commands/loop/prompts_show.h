// gdnctl prompts show
#pragma once

#include <string>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::prompts_show {

struct Options {
    std::string name;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::prompts_show
