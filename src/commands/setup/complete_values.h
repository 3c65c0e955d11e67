// gdnctl __complete: values for the shells' completion
#pragma once

#include <string>
#include <vector>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::complete_values {

struct Options {
    std::string kind;
    std::vector<std::string> line;  // the words before the cursor, and perhaps the one at it
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::complete_values
