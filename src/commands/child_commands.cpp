// The hidden commands with which gdnctl starts itself as a child: supervisor of local jobs, holder of a TPU, host of
// kernels.
#include <iostream>
#include <string>

#include "cli/args.h"
#include "commands/table.h"
#include "core/result.h"
#include "harness/child/host.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "platform/env.h"
#include "platform/http.h"
#include "services/devtpu/holder.h"
#include "services/local/local_jobs.h"

namespace gdnctl::commands::local_supervisor {

struct Options {
    std::string folder;
};

void describe(cli::Args& args, Options& options) {
    args.about("Supervises one local job. Started by the commands that submit jobs.");
    args.positional(options.folder, "FOLDER", "the job's folder in the state directory");
}

Result<ExitCode> run(const Options& options, Context& /*context*/) {
    return run_local_supervisor(options.folder) == 0 ? ExitCode::ok : ExitCode::infrastructure;
}

}  // namespace gdnctl::commands::local_supervisor

// gdnctl __dev-tpu-holder: holds a TPU of this machine. A job of the local backend.
namespace gdnctl::commands::dev_tpu_holder {

struct Options {};

void describe(cli::Args& args, Options& /*options*/) {
    args.about("Holds a TPU of this machine. Started by dev-tpu-allocate as a job of the local backend.");
}

Result<ExitCode> run(const Options& /*options*/, Context& context) {
    const int code = devtpu::run_local_holder(context.env, context.http, context.clock, std::cout, context.stop);
    return code == 0 ? ExitCode::ok : ExitCode::local_io;
}

}  // namespace gdnctl::commands::dev_tpu_holder

// The hidden command in whose process a kernel under test runs; not for people.
namespace gdnctl::commands::kernel_host {

using Options = harness::HostOptions;

namespace {

constexpr std::string_view k_modes[] = {"lib", "linear-ce", "solution", "program", "python", "python-offline"};

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about("Runs a kernel under test. Started by the oracle's commands.");
    args.positional(options.mode, k_modes, {"MODE", "a shared object, or a program over files"});
    args.positional(options.folder, "FOLDER", "where the two sides meet");
    args.positional(options.kernel, "KERNEL", "path of the shared object, or shell words");
    args.option(options.tensors, "--tensors PATH", "another folder, removed with the first if the parent dies");
}

Result<ExitCode> run(const Options& options, Context& context) { return harness::host_kernel(options, context); }

}  // namespace gdnctl::commands::kernel_host

namespace gdnctl::commands {

Rows child_commands() {
    static constexpr cli::Command k_rows[] = {cli::make<&kernel_host::describe, &kernel_host::run>(
                                                  "__kernel-host", "", "run a kernel under test", Tier::process)
                                                  .without_config(),
                                              cli::make<&dev_tpu_holder::describe, &dev_tpu_holder::run>(
                                                  "__dev-tpu-holder", "", "hold a TPU of this machine", Tier::http)
                                                  .without_config(),
                                              cli::make<&local_supervisor::describe, &local_supervisor::run>(
                                                  "__local-supervisor", "", "supervise one local job", Tier::none)
                                                  .without_config()};
    return k_rows;
}

}  // namespace gdnctl::commands
