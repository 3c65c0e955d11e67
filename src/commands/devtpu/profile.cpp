#include "commands/devtpu/profile.h"

#include "commands/devtpu/run_job.h"
#include "core/log.h"
#include "jobs/target.h"
#include "platform/env.h"
#include "services/devtpu/names.h"

namespace gdnctl::commands::dev_tpu_profile {

namespace {

// Where the run keeps its data: as told, else the environment's, else the bucket of the TPU's region, since a cache in
// another region is refused.
std::string prefix_of(const Options& options, const devtpu::HoldRecord& record, const Context& context) {
    if (options.marin_prefix) return *options.marin_prefix;
    if (const auto value = context.env.get("MARIN_PREFIX"); value && !value->empty()) return *value;
    const std::string& zone = record.host.gcloud_zone;
    return devtpu::marin_prefix(zone.empty() ? record.cluster : zone);
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Syncs the working tree to a held TPU, runs the target's profile there as ray-profile would, and prints the "
        "metrics that it reports.");
    ray_profile::describe_run(args, options.profile);
    args.option(options.marin_prefix, {.names = "--marin-prefix",
                                       .value = "URI",
                                       .help = "where the run keeps its data (MARIN_PREFIX)",
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
    GDNCTL_TRY(check_embedded_kernel(target, context));
    GDNCTL_TRY_ASSIGN(ProfileSettings settings, ray_profile::settings_of(options.profile));
    Via via = options.run.via;
    GDNCTL_TRY_ASSIGN(const FoundHold hold, devtpu_options::ready_hold(options.name, options.sync, via, context));
    GDNCTL_TRY_ASSIGN(const Place place, choose_place(hold.place, context));
    GDNCTL_TRY_ASSIGN(target, target_at(place, std::move(target), context));
    if (settings.tpu == "auto") settings.tpu = hold.record.tpu_type;
    settings.on_dev_tpu = via == Via::ssh && hold.record.cluster != "local";
    JobPlan plan{"profile", target.name, {}, cluster_env(target), target.metric};
    GDNCTL_TRY_ASSIGN(plan.command, profile_command(target, settings, context.program));
    const std::string prefix = prefix_of(options, hold.record, context);
    if (target.style == TargetStyle::levanter && !prefix.empty()) plan.command.env.emplace_back("MARIN_PREFIX", prefix);
    GDNCTL_TRY_ASSIGN(const JobRun run, run_held(hold, via, plan, {options.sync, options.run}, context));
    return ray_profile::finish("gdnctl.dev-tpu-profile/1", options.profile, settings, target, run, context);
}

}  // namespace gdnctl::commands::dev_tpu_profile
