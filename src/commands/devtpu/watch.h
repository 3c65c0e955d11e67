// gdnctl dev-tpu-watch: run a command on the host of a held TPU, again at every change of the tree.
#pragma once

#include <string>
#include <vector>

#include "commands/devtpu/options.h"

namespace gdnctl::commands::dev_tpu_watch {

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
    devtpu_options::Run run;
    double debounce_s = 1;
    std::vector<std::string> command;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::dev_tpu_watch
