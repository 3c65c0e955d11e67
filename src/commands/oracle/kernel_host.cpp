// The hidden command in whose process a kernel under test runs; not for people.
#include "cli/args.h"
#include "commands/rows.h"
#include "core/exit_code.h"
#include "harness/child/host.h"
#include "platform/context.h"

namespace gdnctl::commands::kernel_host {

using Options = harness::HostOptions;

namespace {

constexpr std::string_view k_modes[] = {"lib", "linear-ce", "solution", "program"};

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about("Runs a kernel under test. Started by the oracle's commands.");
    args.positional(options.mode, k_modes, {.name = "MODE", .help = "a shared object, or a program over files"});
    args.positional(options.folder, {.name = "FOLDER", .help = "where the two sides meet"});
    args.positional(options.kernel, {.name = "KERNEL", .help = "path of the shared object, or shell words"});
}

Result<ExitCode> run(const Options& options, Context& /*context*/) { return harness::host_kernel(options); }

}  // namespace gdnctl::commands::kernel_host

namespace gdnctl::commands {

constinit const cli::Command k_kernel_host_row =
    cli::make<&kernel_host::describe, &kernel_host::run>("__kernel-host", "", "run a kernel under test", Tier::none)
        .without_config();

}  // namespace gdnctl::commands
