// The hidden command in whose process a kernel under test runs; not for people.
#pragma once

#include "cli/args.h"
#include "core/exit_code.h"
#include "harness/child/host.h"
#include "platform/context.h"

namespace gdnctl::commands::kernel_host {

using Options = harness::HostOptions;

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::kernel_host
