// gdnctl __dev-tpu-holder: holds a TPU of this machine. A job of the local backend.
#pragma once

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::dev_tpu_holder {

struct Options {};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::dev_tpu_holder
