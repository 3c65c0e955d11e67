// gdnctl dev-tpu-connect: a shell on the host of a held TPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"

namespace gdnctl::commands::dev_tpu_connect {

struct Options {
    devtpu_options::Name name;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::dev_tpu_connect
