// gdnctl dev-tpu-list: who holds which TPU, since when and until when.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"

namespace gdnctl::commands::dev_tpu_list {

struct Options {
    PlaceOptions place;
    bool all_users = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::dev_tpu_list
