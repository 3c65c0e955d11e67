// gdnctl dev-tpu-test: run the target's correctness test on a held TPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"
#include "commands/jobs/ray_test.h"

namespace gdnctl::commands::dev_tpu_test {

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
    devtpu_options::Run run;
    ray_test::Options test;  // what is tested; its place and submission are not used
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::dev_tpu_test
