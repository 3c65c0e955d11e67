#include "commands/ray_profile.h"

#include <array>

#include <nlohmann/json.hpp>

#include "commands/job_results.h"
#include "gdnctl/core/json.h"
#include "gdnctl/core/log.h"
#include "gdnctl/platform/terminal.h"

namespace gdnctl::commands::ray_profile {

namespace {

using Word = cli::Choice<std::string>;
const std::array<Word, 4> k_sizes = {{{"130m", "130m"}, {"300m", "300m"}, {"520m", "520m"}, {"1_2b", "1_2b"}}};
const std::array<Word, 3> k_wandb = {{{"online", "online"}, {"offline", "offline"}, {"disabled", "disabled"}}};
const std::array<Word, 5> k_ce = {{{"auto", "auto"},
                                   {"xla", "xla"},
                                   {"reference", "reference"},
                                   {"pallas_tpu", "pallas_tpu"},
                                   {"pallas_gpu", "pallas_gpu"}}};
const std::array<Word, 2> k_ce_backward = {{{"pallas", "pallas"}, {"xla_streaming", "xla_streaming"}}};
constexpr std::array<cli::Choice<bool>, 2> k_driver = {
    {{"head", false, "no resources for the driver: it asks for the TPU itself"},
     {"tpu", true, "the driver runs on the TPU host"}}};

void describe_model(cli::Args& args, ProfileSettings& s) {
    args.option(s.size, k_sizes, {.names = "--size", .value = "SIZE", .help = "model size", .group = "Run"});
    args.option(s.num_steps, {.names = "--num-steps", .value = "N", .help = "training steps", .group = "Run"});
    args.option(s.profile_start_step,
                {.names = "--profile-start-step", .value = "N", .help = "first step in the trace", .group = "Run"});
    args.option(s.profile_num_steps,
                {.names = "--profile-num-steps", .value = "N", .help = "steps in the trace", .group = "Run"});
    args.option(
        s.batch_size,
        {.names = "--batch-size", .value = "N", .help = "sequences per step", .group = "Run", .default_text = "8"});
    args.option(s.chunk_size, {.names = "--chunk-size", .value = "N", .help = "chunk of the kernel", .group = "Run"});
    args.option(s.segment_size,
                {.names = "--segment-size", .value = "N", .help = "segment of the kernel", .group = "Run"});
    args.option(s.gdn_layers_per_block, {.names = "--gdn-layers-per-block",
                                         .value = "N",
                                         .help = "GDN layers in each block of layers",
                                         .group = "Run"});
    args.option(s.gdn_block_size,
                {.names = "--gdn-block-size", .value = "N", .help = "layers in a block", .group = "Run"});
    args.flag(s.all_transformer,
              {.names = "--all-transformer", .help = "control run with attention layers only", .group = "Run"});
    args.option(
        s.ce_implementation, k_ce,
        {.names = "--ce-implementation", .value = "NAME", .help = "fused cross-entropy to use", .group = "Run"});
    args.option(s.ce_bwd_mode, k_ce_backward,
                {.names = "--ce-bwd-mode", .value = "MODE", .help = "its backward pass", .group = "Run"});
    args.option(s.run_name_prefix,
                {.names = "--run-name-prefix", .value = "TEXT", .help = "start of the run's name", .group = "Run"});
    args.option(s.wandb_mode, k_wandb,
                {.names = "--wandb-mode", .value = "MODE", .help = "how the run reports", .group = "Run"});
    args.flag(s.dry_run, {.names = "--dry-run", .help = "let the run only show what it would do", .group = "Run"});
}

void show_results(const ProfileReport& p) {
    if (p.mfu) log::info("throughput/mfu: {}", *p.mfu);
    if (p.tokens_per_second) log::info("throughput/tokens_per_second: {}", *p.tokens_per_second);
    if (p.duration) log::info("throughput/duration: {}", *p.duration);
    if (p.ce_implementation) log::info("fused cross-entropy: {}", *p.ce_implementation);
    if (p.run_url) log::info("run: {}", *p.run_url);
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about("Submits the target's profile as a job, follows its log, and prints the metrics that it reports.");
    args.option(options.settings.tpu,
                {.names = "--tpu", .value = "TYPE", .help = "accelerator that the run uses, such as v5p-8"});
    args.option(options.driver_on_tpu, k_driver,
                {.names = "--driver-on", .value = "NODE", .help = "where the driver runs"});
    describe_model(args, options.settings);
    args.option(options.profile_env, {.names = "--profile-env",
                                      .value = "KEY=VALUE",
                                      .help = "rarer setting of the run; may be repeated",
                                      .group = "Run"});
    describe_submit(args, options.submit);
    describe_place(args, options.place);
    args.example("gdnctl ray-profile --cluster us-central1 --tpu v5p-8 --size 130m --num-steps 20 --no-wait",
                 "a short profiled run");
    args.example("gdnctl ray-profile --cluster local --target mine", "the profile of a target of your own");
    args.see_also("ray-wait");
    args.see_also("ray-logs");
    args.check([&options]() -> Status {
        const ProfileSettings& s = options.settings;
        for (const std::int64_t n :
             {s.num_steps, s.profile_num_steps, s.batch_size.value_or(1), s.chunk_size.value_or(1),
              s.segment_size.value_or(1), s.gdn_layers_per_block.value_or(1), s.gdn_block_size.value_or(1)}) {
            if (n < 1) return fail(ErrorKind::usage, "steps, batch and block sizes want 1 or more");
        }
        if (s.profile_start_step < 0) return fail(ErrorKind::usage, "--profile-start-step wants 0 or more");
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const Target target, select_target(context.config, project_root(context)));
    ProfileSettings settings = options.settings;
    GDNCTL_TRY_ASSIGN(const auto extra, parse_env_items(options.profile_env, "--profile-env"));
    for (const JobEnv& item : extra) settings.extra_env.emplace_back(item.name, item.value);
    std::map<std::string, double> tpu;
    if (settings.tpu != "auto") {
        GDNCTL_TRY_ASSIGN(tpu, tpu_resources(settings.tpu));
    } else if (target.style == TargetStyle::levanter) {
        return fail(ErrorKind::usage, "TPU auto-detection requires --cluster to be set.",
                    "name the accelerator, such as --tpu v5p-8");
    }
    GDNCTL_TRY_ASSIGN(JobCommand command, profile_command(target, settings, self_path()));
    if (options.driver_on_tpu) command.resources.insert(tpu.begin(), tpu.end());
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options.place, context));
    GDNCTL_TRY_ASSIGN(const JobRun run,
                      run_job({"profile", target.name, std::move(command)}, options.submit, *backend, context));
    if (run.waited) {
        show_results(run.output.profile());
        report_end(run);
    }
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.ray-profile/1";
        put_job(out, run.place, run.details, run.verdict);
        out["target"] = target.name;
        out["profile"] = profile_json(run.output.profile());
        context.terminal.out(to_text(out) + "\n");
    }
    return run.waited ? run.verdict.exit : ExitCode::ok;
}

}  // namespace gdnctl::commands::ray_profile
