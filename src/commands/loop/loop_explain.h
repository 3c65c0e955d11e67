// gdnctl loop-explain: why an iteration was kept or refused.
#pragma once

#include <optional>
#include <string>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::loop_explain {

struct Options {
    std::string iteration;  // a number, or "last"
    std::optional<std::string> log_dir;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::loop_explain
