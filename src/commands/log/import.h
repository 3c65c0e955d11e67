// gdnctl log import
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::log_import {

struct Options {
    std::optional<std::string> log_file;
    bool dry_run = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::log_import
