// The hidden command in whose process a kernel under test runs; not for people.
#pragma once

#include <string>

#include "cli/args.h"
#include "core/exit_code.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_kernel_host {

struct Options {
    std::string mode;  // "lib", "solution" or "program"
    std::string
        folder;  // lib, solution: ask, answer, memory; program: inputs.safetensors, outputs.safetensors, network
    std::string kernel;  // lib: path of the shared object; solution: FUNCTION:PATH; program: shell words
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_kernel_host
