// gdnctl dev-tpu-release: give a held TPU back, by name, from anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"

namespace gdnctl::commands::dev_tpu_release {

struct Options {
    PlaceOptions place;
    std::optional<std::string> tpu_name;
    std::optional<std::string> submission_id;
    bool all_mine = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::dev_tpu_release
