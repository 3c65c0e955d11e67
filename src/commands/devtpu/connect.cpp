// gdnctl dev-tpu-connect: a shell on the host of a held TPU.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"
#include "commands/rows.h"
#include "core/log.h"

namespace gdnctl::commands::dev_tpu_connect {

struct Options {
    devtpu_options::Name name;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Opens a login shell in the synced tree on the TPU's host, with the environment that dev-tpu-execute gives its "
        "commands. The hold is renewed while the shell is open.");
    devtpu_options::describe_name(args, options.name);
    args.exit_code(4, "the connection or the TPU was lost, or the name is not held");
    args.example("gdnctl dev-tpu-connect --tpu-name \"$USER-gdn\"");
    args.see_also("dev-tpu-execute");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(FoundHold hold, find_hold(options.name.tpu_name, options.name.place, context));
    GDNCTL_TRY(choose_via(hold, Via::ssh, context));
    HostRun shell;
    shell.interactive = true;
    GDNCTL_TRY_ASSIGN(shell.env, host_environment(hold, {}, false, context));
    shell.line = "\"${SHELL:-/bin/sh}\" -l";
    GDNCTL_TRY_ASSIGN(const int code, run_on_host(hold, shell, context));
    return static_cast<ExitCode>(code);
}

}  // namespace gdnctl::commands::dev_tpu_connect

namespace gdnctl::commands {

constinit const cli::Command k_dev_tpu_connect_row = cli::make<&dev_tpu_connect::describe, &dev_tpu_connect::run>(
    "dev-tpu-connect", "Dev TPUs", "open a shell on a held TPU's host", Tier::http);

}  // namespace gdnctl::commands
