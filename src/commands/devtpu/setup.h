// gdnctl dev-tpu-setup: set up the host of a held TPU again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"

namespace gdnctl::commands::dev_tpu_setup {

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::dev_tpu_setup
