#include "commands/jobs/ray_profile.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/jobs/job_options.h"
#include "commands/jobs/job_preview.h"
#include "commands/jobs/profile_settings.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "commands/target.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/place.h"
#include "jobs/results.h"
#include "jobs/run.h"
#include "jobs/target_job.h"
#include "platform/terminal.h"

namespace gdnctl::commands::ray_profile {

namespace {

constexpr std::array<cli::Choice<bool>, 2> k_driver = {
    {{"head", false, "reserve nothing for the driver; the run asks for the TPU itself"},
     {"tpu", true, "run the driver on the TPU host"}}};

// null: the target has none. A run that was not waited for has no value.
Json metric_json(const std::optional<TargetMetric>& metric, const std::optional<MetricReader>& read) {
    if (!metric) return nullptr;
    const auto value = read ? read->value() : std::nullopt;
    Json out;
    out["name"] = metric->name;
    out["value"] = value ? Json(*value) : Json(nullptr);
    out["unit"] = metric->unit;
    out["better"] = metric->lower_is_better ? "lower" : "higher";
    return out;
}

Json settings_json(const ProfileSettings& s, const Options& options) {
    const auto number = [](const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(nullptr); };
    Json out;
    out["size"] = s.size;
    out["num_steps"] = s.num_steps;
    out["profile_start_step"] = s.profile_start_step;
    out["profile_num_steps"] = s.profile_num_steps;
    out["batch_size"] = number(s.batch_size);
    out["chunk_size"] = number(s.chunk_size);
    out["segment_size"] = number(s.segment_size);
    out["gdn_layers_per_block"] = number(s.gdn_layers_per_block);
    out["gdn_block_size"] = number(s.gdn_block_size);
    out["all_transformer"] = s.all_transformer;
    out["ce_implementation"] = s.ce_implementation;
    out["ce_bwd_mode"] = s.ce_bwd_mode;
    out["run_name_prefix"] = s.run_name_prefix;
    out["wandb_mode"] = s.wandb_mode;
    out["dry_run"] = s.dry_run;
    out["driver_on"] = options.driver_on_tpu ? "tpu" : "head";
    return out;
}

}  // namespace

void describe_run(cli::Args& args, Options& options) {
    args.option(options.settings.tpu,
                {.names = "--tpu", .value = "TYPE", .help = "accelerator for the run, such as v5p-8"});
    const ProfileNames names;
    describe_model(args, options.settings, names);
    describe_cross_entropy(args, options.settings, names);
    describe_run_name(args, options.settings, names);
    args.flag(options.settings.dry_run,
              {.names = "--dry-run",
               .help = "submit a run that only shows what it would do; if the target has none, show the request",
               .group = names.group});
    args.option(options.profile_env,
                {.names = "--profile-env", .value = "KEY=VALUE", .help = "another setting of the run", .group = "Run"});
    args.check([&options] { return check_settings(options.settings); });
}

Result<ProfileSettings> settings_of(const Options& options) {
    ProfileSettings settings = options.settings;
    GDNCTL_TRY(add_profile_env(settings, options.profile_env));
    return settings;
}

Result<ExitCode> finish(std::string_view schema, const Options& options, const ProfileSettings& settings,
                        const Target& target, JobRun run, Context& context) {
    ExitCode exit = conclude_profile(run, target, context.global.json);
    if (exit == ExitCode::ok && run.metric && run.metric->broken()) {
        // What ran over ssh is no job, and its log has been printed.
        const bool is_job = run.subject.empty();
        log::error("the profile succeeded, but its result '{}' is not a usable number; {}", target.metric->name,
                   is_job ? fmt::format("`gdnctl ray-logs{} {}` shows its log", cluster_words(run.place),
                                        text::shell_quote(run.request.submission_id))
                          : "its log is printed above");
        exit = ExitCode::check_failed;
        run.verdict = {FailureClass::user, exit};
    }
    if (context.global.json) {
        Json out;
        out["schema"] = schema;
        put_run(out, run);
        out["target"] = target.name;
        out["profile"] = profile_json(run.output.profile());
        out["metric"] = metric_json(target.metric, run.metric);
        out["tpu_evidence"] = is_tpu_evidence(run.place, run.verdict, run.details, run.output);
        out["tpu"] = settings.tpu.empty() ? Json(nullptr) : Json(settings.tpu);
        put_command(out, run.request);
        out["settings"] = target.style == TargetStyle::levanter ? settings_json(settings, options) : Json(nullptr);
        print_json(out, context, -1);
    }
    if (run.cut_short) return tl::unexpected(*run.cut_short);
    return exit;
}

void describe(cli::Args& args, Options& options) {
    args.about(
        "Submits the target's profile as a job, follows its log, and prints the metrics that it reports. A local job "
        "keeps running after this command, as with ray-test.");
    args.option(options.driver_on_tpu, k_driver,
                {.names = "--driver-on", .value = "NODE", .help = "node that runs the driver"});
    describe_run(args, options);
    describe_submit(args, options.submit);
    describe_place(args, options.place);
    args.exit_code(8, "the state directory or a file cannot be used, or a link leads out of the tree");
    args.example("gdnctl ray-profile --cluster us-central1 --tpu v5p-8 --size 130m --num-steps 20 --no-wait",
                 "a short profiled run");
    args.example("gdnctl ray-profile --cluster local --target mine", "the profile of your own target");
    args.see_also("ray-wait");
    args.see_also("ray-logs");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(ProfileSettings settings, settings_of(options));
    GDNCTL_TRY_ASSIGN(const PlannedJob job, plan_profile(std::move(target), std::move(settings), options.driver_on_tpu,
                                                         options.place, context));
    // A run with a fixed command line has no dry run of its own.
    if (job.settings.dry_run && job.target.style == TargetStyle::argv) {
        return show_preview(job.plan, options.submit, job.place, "gdnctl.ray-profile-preview/1", context);
    }
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(job.place, options.place, context));
    GDNCTL_TRY_ASSIGN(JobRun run, run_job(job.plan, options.submit, *backend, context));
    return finish("gdnctl.ray-profile/1", options, job.settings, job.target, std::move(run), context);
}

}  // namespace gdnctl::commands::ray_profile

namespace gdnctl::commands {

constinit const cli::Command k_ray_profile_row = cli::make<&ray_profile::describe, &ray_profile::run>(
    "ray-profile", "Jobs", "run the target's profile as a job", Tier::http);

}  // namespace gdnctl::commands
