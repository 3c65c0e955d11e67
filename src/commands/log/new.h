// gdnctl log new
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::log_new {

struct Options {
    std::optional<std::string> log_file;
    std::optional<std::string> title;
    std::optional<std::string> hypothesis;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::log_new
