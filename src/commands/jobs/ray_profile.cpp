#include "commands/jobs/ray_profile.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/jobs/job_options.h"
#include "commands/jobs/job_preview.h"
#include "commands/jobs/profile_settings.h"
#include "commands/print.h"
#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "jobs/results.h"
#include "jobs/run.h"
#include "jobs/target.h"
#include "jobs/tpu.h"
#include "platform/terminal.h"

namespace gdnctl::commands::ray_profile {

namespace {

constexpr std::array<cli::Choice<bool>, 2> k_driver = {
    {{"head", false, "reserve nothing for the driver; the run asks for the TPU itself"},
     {"tpu", true, "run the driver on the TPU host"}}};

// With --json these lines may be read as well, so they have all digits.
std::string shown_value(double value, std::string_view unit, bool json) {
    return json ? fmt::format("{}{}{}", value, unit.empty() ? "" : " ", unit) : quantity(value, unit);
}

void show_metric(const TargetMetric& metric, const MetricReader& read, bool json) {
    if (const auto value = read.value()) {
        log::info("metric {}: {}", metric.name, shown_value(*value, metric.unit, json));
    } else {
        log::warning("metric {}: {} ({})", metric.name, read.lack(), metric.from);
    }
}

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

void show_results(const ProfileReport& p, bool json) {
    if (p.mfu) log::info("throughput/mfu: {}", shown_value(*p.mfu, "", json));
    if (p.tokens_per_second) {
        log::info("throughput/tokens_per_second: {}", shown_value(*p.tokens_per_second, "", json));
    }
    if (p.duration) log::info("throughput/duration: {}", shown_value(*p.duration, "s", json));
    if (p.ce_implementation) log::info("fused cross-entropy: {}", *p.ce_implementation);
    if (p.run_url) log::info("run: {}", *p.run_url);
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

// The run itself is told the type, so it must be known here, also where the job asks for nothing. This machine has
// none of its own accord.
Result<TpuChoice> choose_profile_tpu(const Options& options, const Place& place, const Target& target) {
    GDNCTL_TRY_ASSIGN(TpuChoice tpu, choose_tpu(options.settings.tpu, place, target));
    if (tpu.type.empty() && target.style == TargetStyle::levanter && !place.local) {
        return fail(ErrorKind::usage, "TPU auto-detection requires --cluster to be set.",
                    "name the accelerator, for example --tpu v5p-8");
    }
    return tpu;
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
    args.check([&options]() -> Status {
        const ProfileSettings& s = options.settings;
        for (const std::int64_t n :
             {s.num_steps, s.profile_num_steps, s.batch_size.value_or(1), s.chunk_size.value_or(1),
              s.segment_size.value_or(1), s.gdn_layers_per_block.value_or(1), s.gdn_block_size.value_or(1)}) {
            if (n < 1) return fail(ErrorKind::usage, "steps, batch and block sizes must be at least 1");
        }
        if (s.profile_start_step < 0) return fail(ErrorKind::usage, "--profile-start-step: expected 0 or more");
        return {};
    });
}

Result<ProfileSettings> settings_of(const Options& options) {
    ProfileSettings settings = options.settings;
    GDNCTL_TRY_ASSIGN(const auto extra, parse_env_items(options.profile_env, "--profile-env"));
    for (const JobEnv& item : extra) settings.extra_env.emplace_back(item.name, item.value);
    return settings;
}

Result<ExitCode> finish(std::string_view schema, const Options& options, const ProfileSettings& settings,
                        const Target& target, const JobRun& run, Context& context) {
    if (run.waited && !run.cut_short) {
        show_results(run.output.profile(), context.global.json);
        if (target.metric && run.metric) show_metric(*target.metric, *run.metric, context.global.json);
        report_end(run);
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
    return run.waited ? run.verdict.exit : ExitCode::ok;
}

void describe(cli::Args& args, Options& options) {
    args.about(
        "Submits the target's profile as a job, follows its log, and prints the metrics that it reports. A local job "
        "keeps running after this command, as with ray-test.");
    args.option(options.driver_on_tpu, k_driver,
                {.names = "--driver-on", .value = "NODE", .help = "where the driver runs"});
    describe_run(args, options);
    describe_submit(args, options.submit);
    describe_place(args, options.place);
    args.exit_code(8, "the state directory or a file is unusable, or a link leads out of the tree");
    args.example("gdnctl ray-profile --cluster us-central1 --tpu v5p-8 --size 130m --num-steps 20 --no-wait",
                 "a short profiled run");
    args.example("gdnctl ray-profile --cluster local --target mine", "the profile of a target of your own");
    args.see_also("ray-wait");
    args.see_also("ray-logs");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(ProfileSettings settings, settings_of(options));
    GDNCTL_TRY(check_embedded_kernel(target, context));
    GDNCTL_TRY_ASSIGN(const Place place, choose_place(options.place, context));
    GDNCTL_TRY_ASSIGN(target, target_at(place, std::move(target), context));
    GDNCTL_TRY_ASSIGN(const TpuChoice tpu, choose_profile_tpu(options, place, target));
    settings.tpu = tpu.type;
    JobPlan plan{"profile", target.name, {}, cluster_env(target), target.metric};
    GDNCTL_TRY_ASSIGN(plan.command, profile_command(target, settings, context.program));
    if (options.driver_on_tpu) plan.command.resources.insert(tpu.resources.begin(), tpu.resources.end());
    // The run of a target that is run as it is written knows no dry run of its own.
    if (settings.dry_run && target.style == TargetStyle::argv) {
        return show_preview(plan, options.submit, place, "gdnctl.ray-profile-preview/1", context);
    }
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(place, options.place, context));
    GDNCTL_TRY_ASSIGN(const JobRun run, run_job(plan, options.submit, *backend, context));
    return finish("gdnctl.ray-profile/1", options, settings, target, run, context);
}

}  // namespace gdnctl::commands::ray_profile
