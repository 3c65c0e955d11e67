// gdnctl oracle selftest
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/args.h"
#include "commands/oracle/operators.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_selftest {

struct Options {
    std::optional<std::string> op;
    std::int64_t threads = 0;
    Operators operators = commands::operators();
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_selftest
