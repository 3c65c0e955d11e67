// gdnctl dev-tpu-profile: run the target's profile on a held TPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"
#include "commands/jobs/ray_profile.h"

namespace gdnctl::commands::dev_tpu_profile {

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
    devtpu_options::Run run;
    std::optional<std::string> marin_prefix;
    ray_profile::Options profile;  // what is run; its place and submission are not used
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::dev_tpu_profile
