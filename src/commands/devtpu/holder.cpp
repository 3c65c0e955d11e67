#include "commands/devtpu/holder.h"

#include <iostream>

#include "platform/clock.h"
#include "platform/env.h"
#include "platform/http.h"
#include "services/devtpu/holder.h"

namespace gdnctl::commands::dev_tpu_holder {

void describe(cli::Args& args, Options& /*options*/) {
    args.about("Holds a TPU of this machine. Started by dev-tpu-allocate as a job of the local backend.");
}

Result<ExitCode> run(const Options& /*options*/, Context& context) {
    const int code = devtpu::run_local_holder(context.env, context.http, context.clock, std::cout, context.stop);
    return code == 0 ? ExitCode::ok : ExitCode::local_io;
}

}  // namespace gdnctl::commands::dev_tpu_holder
