// gdnctl log init
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "platform/context.h"
#include "runlog/parse/log.h"

namespace gdnctl::commands::log_init {

struct Options {
    std::optional<std::string> log_file;
    runlog::Template style = runlog::Template::hillclimb;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::log_init
