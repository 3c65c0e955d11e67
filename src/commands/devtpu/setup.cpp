// gdnctl dev-tpu-setup: set up the host of a held TPU again.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"
#include "commands/rows.h"
#include "core/log.h"
#include "jobs/hold_heart.h"
#include "jobs/hold_host.h"

namespace gdnctl::commands::dev_tpu_setup {

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
};

void describe(cli::Args& args, Options& options) {
    args.about("Syncs the tree and sets up the TPU's host again: uv, and the checkout's environment.");
    devtpu_options::describe_sync(args, options.sync);
    devtpu_options::describe_name(args, options.name);
    args.exit_code(1, "the setup failed");
    args.exit_code(4, "the connection or the TPU was lost, or the name is not held");
    args.example("gdnctl dev-tpu-setup --tpu-name \"$USER-gdn\"");
    args.see_also("dev-tpu-allocate");
}

Result<ExitCode> run(const Options& options, Context& context) {
    Via via = Via::ssh;
    GDNCTL_TRY_ASSIGN(FoundHold hold,
                      ready_hold(options.name.tpu_name, options.name.place, options.sync, via, context));
    const auto heart = start_heart(hold.record, hold.place, context);
    hold.record.setup_ok = set_up_host(hold.record, context);
    GDNCTL_TRY(devtpu::HoldStore(context.state_dir).put(hold.record));
    return *hold.record.setup_ok ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::dev_tpu_setup

namespace gdnctl::commands {

constinit const cli::Command k_dev_tpu_setup_row = cli::make<&dev_tpu_setup::describe, &dev_tpu_setup::run>(
    "dev-tpu-setup", "Dev TPUs", "set up a held TPU's host again", Tier::http);

}  // namespace gdnctl::commands
