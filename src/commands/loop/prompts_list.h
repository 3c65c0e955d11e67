// gdnctl prompts list
#pragma once

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::prompts_list {

struct Options {};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::prompts_list
