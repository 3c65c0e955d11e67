// The hidden entry by which the local backend starts a job's supervisor; not for people.
#pragma once

#include <string>

#include "cli/args.h"
#include "core/exit_code.h"
#include "platform/context.h"

namespace gdnctl::commands::local_supervisor {

struct Options {
    std::string folder;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::local_supervisor
