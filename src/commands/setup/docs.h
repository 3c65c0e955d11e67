// gdnctl __docs: the CLI reference and the manual pages
#pragma once

#include <optional>
#include <string>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::docs {

struct Options {
    std::string format;
    std::optional<std::string> out;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::docs
