// gdnctl __dev-tpu-holder: holds a TPU of this machine. A job of the local backend.
#include "services/devtpu/holder.h"

#include <iostream>

#include "cli/args.h"
#include "commands/rows.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "platform/env.h"
#include "platform/http.h"

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

namespace gdnctl::commands {

constinit const cli::Command k_dev_tpu_holder_row =
    cli::make<&dev_tpu_holder::describe, &dev_tpu_holder::run>("__dev-tpu-holder", "", "hold a TPU of this machine",
                                                               Tier::http)
        .without_config();

}  // namespace gdnctl::commands
