// gdnctl oracle cases
#pragma once

#include <string>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_cases {

struct Options {
    std::string op;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_cases
