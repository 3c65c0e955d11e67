// gdnctl log stamp
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::log_stamp {

struct Options {
    std::optional<std::string> log_file;
    std::string commit;
    std::optional<std::string> record;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::log_stamp
