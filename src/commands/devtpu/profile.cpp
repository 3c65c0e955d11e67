// gdnctl dev-tpu-profile: run the target's profile on a held TPU.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"
#include "commands/jobs/ray_profile.h"
#include "commands/rows.h"
#include "commands/target.h"
#include "jobs/held_job.h"
#include "jobs/target.h"

namespace gdnctl::commands::dev_tpu_profile {

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
    devtpu_options::Run run;
    std::optional<std::string> marin_prefix;
    ray_profile::Options profile;  // the run's options; its place and submission are not used
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Syncs the working tree to a held TPU, runs the target's profile there as ray-profile would, and prints the "
        "metrics that it reports.");
    ray_profile::describe_run(args, options.profile);
    args.option(options.marin_prefix, {.names = "--marin-prefix",
                                       .value = "URI",
                                       .help = "storage for the run's data (MARIN_PREFIX)",
                                       .group = "Run",
                                       .default_text = "$MARIN_PREFIX, or the bucket of the TPU's region"});
    devtpu_options::describe_sync(args, options.sync);
    devtpu_options::describe_run(args, options.run);
    devtpu_options::describe_name(args, options.name);
    args.exit_code(1, "the run failed");
    args.exit_code(4, "the connection or the TPU was lost, or the name is not held");
    args.example("gdnctl dev-tpu-profile --tpu-name \"$USER-gdn\" --tpu v5p-8 --size 130m --no-sync");
    args.see_also("dev-tpu-allocate");
    args.see_also("ray-profile");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, target_in_use(context));
    GDNCTL_TRY(check_target_is_named(target, options.name.place, context));
    GDNCTL_TRY_ASSIGN(ProfileSettings settings, ray_profile::settings_of(options.profile));
    GDNCTL_TRY_ASSIGN(const FoundHold found, find_hold(options.name.tpu_name, options.name.place, context));
    GDNCTL_TRY(check_target_is_named(target, found.record.cluster == "local", context));
    Via via = options.run.via;
    GDNCTL_TRY_ASSIGN(const FoundHold hold,
                      ready_hold(options.name.tpu_name, options.name.place, options.sync, via, context));
    GDNCTL_TRY_ASSIGN(const PlannedJob job, plan_held_profile(std::move(target), std::move(settings),
                                                              options.marin_prefix, hold, via, context));
    GDNCTL_TRY_ASSIGN(JobRun run, run_held(hold, via, job.plan, {options.sync, options.run}, context));
    return ray_profile::finish("gdnctl.dev-tpu-profile/1", options.profile, job.settings, job.target, std::move(run),
                               context);
}

}  // namespace gdnctl::commands::dev_tpu_profile

namespace gdnctl::commands {

constinit const cli::Command k_dev_tpu_profile_row = cli::make<&dev_tpu_profile::describe, &dev_tpu_profile::run>(
    "dev-tpu-profile", "Dev TPUs", "run the target's profile on a held TPU", Tier::http);

}  // namespace gdnctl::commands
