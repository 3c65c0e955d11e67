#include "commands/oracle/kernel_host.h"

namespace gdnctl::commands::kernel_host {

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
