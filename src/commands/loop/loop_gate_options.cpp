#include "commands/loop/loop_gate_options.h"

#include <array>

#include "commands/jobs/profile_settings.h"

namespace gdnctl::commands {

namespace {

using loop::RegressionPolicy;
using loop::ValidationMode;
using loop::ValidationPolicy;
using Suite = TestSelection::Suite;

constexpr std::array<cli::Choice<ValidationMode>, 4> k_validation_modes = {
    {{"auto", ValidationMode::automatic, "required with any other validation or performance option, otherwise off"},
     {"required", ValidationMode::required, "tests and a profile"},
     {"profile-only", ValidationMode::profile_only, "a profile"},
     {"off", ValidationMode::off, "nothing"}}};
constexpr std::array<cli::Choice<ValidationPolicy>, 3> k_gate_policies = {
    {{"fail", ValidationPolicy::fail, "stop the loop"},
     {"count-failure", ValidationPolicy::count_failure, "count it and continue, up to --max-failures"},
     {"continue", ValidationPolicy::go_on, "ignore it and continue"}}};
constexpr std::array<cli::Choice<Suite>, 3> k_gate_suites = {
    {{"kernels", Suite::kernels}, {"layer", Suite::layer}, {"both", Suite::both}}};
constexpr std::array<cli::Choice<loop::PerfMode>, 3> k_perf_modes = {
    {{"auto", loop::PerfMode::automatic, "judge by speed if validation is on"},
     {"required", loop::PerfMode::required, "always judge by speed; needs validation"},
     {"off", loop::PerfMode::off, "do not judge by speed"}}};
constexpr std::array<cli::Choice<RegressionPolicy>, 5> k_regression_policies = {
    {{"revert-count-failure", RegressionPolicy::revert_count_failure, "remove it and count a failure"},
     {"revert-continue", RegressionPolicy::revert_continue, "remove it and continue"},
     {"fail", RegressionPolicy::fail, "stop the loop"},
     {"count-failure", RegressionPolicy::count_failure, "as revert-count-failure, but a missing metric stops the loop"},
     {"continue", RegressionPolicy::go_on, "keep it and continue"}}};
constexpr std::array<cli::Choice<loop::MetricAggregation>, 2> k_aggregations = {
    {{"history-window", loop::MetricAggregation::history_window,
      "average over the run's steps from --perf-history-step-start to -end"},
     {"summary", loop::MetricAggregation::summary, "value at the run's last step"}}};
constexpr std::array<cli::Choice<loop::WindowAverage>, 2> k_averages = {
    {{"median", loop::WindowAverage::median}, {"mean", loop::WindowAverage::mean}}};
const std::array<WordChoice, 3> k_gate_ce_other_backward = {
    {{"off", "off"}, {"pallas", "pallas"}, {"xla_streaming", "xla_streaming"}}};

constexpr std::array<cli::Choice<loop::HoldPolicy>, 2> k_hold = {
    {{"required", loop::HoldPolicy::required, "stop without one"},
     {"best-effort", loop::HoldPolicy::best_effort, "continue without one"}}};

constexpr std::string_view k_validation = "Validation";
constexpr std::string_view k_profile = "Validation profile";
constexpr std::string_view k_performance = "Performance";
constexpr ProfileNames k_profile_names = {k_profile, "--validation-profile-", "start-step", "num-steps-window",
                                          "prefix of the run's name; _iterNNN follows"};

void describe_where(cli::Args& args, loop::ValidationOptions& o) {
    args.option(
        o.clusters,
        {.names = "--validation-ray-cluster",
         .value = "NAME",
         .help =
             "cluster to validate on (`local`: this machine); the next one is tried after an infrastructure failure",
         .group = k_validation,
         .complete = cli::Complete::cluster});
    args.flag(o.cluster_auto, {.names = "--validation-ray-cluster-auto|--no-validation-ray-cluster-auto",
                               .help = "use all clusters of the repository that offer the TPU type",
                               .group = k_validation});
    args.option(o.cluster_exclude, {.names = "--validation-ray-cluster-exclude",
                                    .value = "TEXT",
                                    .help = "skip discovered clusters with TEXT in their names",
                                    .group = k_validation,
                                    .default_text = "vllm, big-run"});
    args.flag(o.cross_tpu_tests,
              {.names = "--validation-cross-tpu-test-fallback|--no-validation-cross-tpu-test-fallback",
               .help = "also run tests (never profiles) on any other v5p, v5e or v6e in these clusters",
               .group = k_validation});
    args.option(o.tpu, {.names = "--validation-ray-tpu",
                        .value = "TYPE",
                        .help = "accelerator for the tests; auto: the cluster's own",
                        .group = k_validation});
    args.flag(o.dev_no_sync, {.names = "--validation-dev-no-sync",
                              .help = "do not copy the tree to the held TPU first",
                              .group = k_validation});
}

void describe_validation(cli::Args& args, loop::ValidationOptions& o) {
    args.option(o.policy, k_gate_policies,
                {.names = "--validation-policy",
                 .value = "POLICY",
                 .help = "what to do with an iteration whose tests or profile fail",
                 .group = k_validation});
    args.option(o.max_attempts, {.names = "--validation-max-attempts",
                                 .value = "N",
                                 .help = "passes over all clusters after infrastructure failures (-1: up to 30)",
                                 .group = k_validation});
    args.option(o.retry_sleep_s, {.names = "--validation-retry-sleep",
                                  .value = "SECONDS",
                                  .help = "pause between passes, in seconds",
                                  .group = k_validation});
    args.option(o.test_timeout_s, {.names = "--validation-ray-test-timeout",
                                   .value = "SECONDS",
                                   .help = "stop a test job after this time",
                                   .group = k_validation});
    args.option(o.profile_timeout_s, {.names = "--validation-ray-profile-timeout",
                                      .value = "SECONDS",
                                      .help = "stop a profile job after this time",
                                      .group = k_validation});
    args.option(o.log_tail, {.names = "--validation-ray-log-tail",
                             .value = "N",
                             .help = "search the last N lines of a failed job's log for the first failing case, and "
                                     "show six lines of it (0: show nothing)",
                             .group = k_validation});
    args.option(
        o.suite, k_gate_suites,
        {.names = "--validation-tests", .value = "SUITE", .help = "pytest suites to run", .group = k_validation});
    args.option(o.pytest_args, {.names = "--validation-pytest-args",
                                .value = "WORDS",
                                .help = "extra pytest arguments, quoted as for a shell",
                                .group = k_validation});
    describe_where(args, o);
}

void describe_other_cross_entropy(cli::Args& args, loop::ValidationOptions& o) {
    args.option(
        o.ce_compare_implementation, k_ce_implementations,
        {.names = "--validation-profile-ce-compare-implementation",
         .value = "NAME",
         .help = "also profile each candidate with this implementation, for the record; auto: no second profile",
         .group = k_profile});
    args.option(o.ce_compare_bwd_mode, k_gate_ce_other_backward,
                {.names = "--validation-profile-ce-bwd-compare-mode",
                 .value = "MODE",
                 .help = "also profile each candidate with this backward pass",
                 .group = k_profile});
}

void describe_profile(cli::Args& args, loop::ValidationOptions& o) {
    ProfileSettings& s = o.profile;
    args.option(
        s.tpu,
        {.names = "--validation-profile-tpu", .value = "TYPE", .help = "accelerator for the run", .group = k_profile});
    describe_model(args, s, k_profile_names);
    args.flag(s.dry_run, {.names = "--validation-profile-dry-run",
                          .help = "submit a run that only shows what it would do",
                          .group = k_profile});
    args.option(o.profile_env, {.names = "--validation-profile-env",
                                .value = "KEY=VALUE",
                                .help = "another setting of the run",
                                .group = k_profile});
    args.option(o.marin_prefix, {.names = "--validation-profile-marin-prefix",
                                 .value = "URL",
                                 .help = "bucket for profiles on the held TPU",
                                 .group = k_profile,
                                 .default_text = "the bucket of its region"});
    describe_cross_entropy(args, s, k_profile_names);
    describe_other_cross_entropy(args, o);
    describe_run_name(args, s, k_profile_names);
}

void describe_perf(cli::Args& args, loop::PerfOptions& o) {
    args.option(o.mode, k_perf_modes,
                {.names = "--perf-mode",
                 .value = "MODE",
                 .help = "whether to judge candidates by speed",
                 .group = k_performance});
    args.option(o.state_file, {.names = "--perf-state-file",
                               .value = "PATH",
                               .help = "file for champions and measurements",
                               .group = k_performance,
                               .default_text = "perf_state.json of the log directory",
                               .complete = cli::Complete::file});
    args.option(o.metric, {.names = "--perf-metric",
                           .value = "NAME",
                           .help = "metric of the profile to judge by",
                           .group = k_performance,
                           .default_text = "the target's, or throughput/mfu"});
    args.option(
        o.pairs,
        {.names = "--perf-pairs",
         .value = "N",
         .help = "maximum number of pairs of profiles (champion and candidate alternate): 3, 5 or 9; 1: compare one "
                 "profile with the champion's recorded value",
         .group = k_performance});
    args.option(o.upper_bound_step_ms, {.names = "--perf-upper-bound-step-ms",
                                        .value = "MS",
                                        .help = "step time of the control run with attention layers only",
                                        .group = k_performance});
}

void describe_recorded(cli::Args& args, loop::RecordedOptions& o) {
    args.option(o.aggregation, k_aggregations,
                {.names = "--perf-aggregation",
                 .value = "KIND",
                 .help = "value to use for a run recorded at W&B",
                 .group = k_performance});
    args.option(o.average, k_averages,
                {.names = "--perf-history-aggregation",
                 .value = "AVERAGE",
                 .help = "average to use in the window",
                 .group = k_performance});
    const auto number = [&args](std::int64_t& value, std::string_view names, std::string_view help) {
        args.option(value, {.names = names, .value = "N", .help = help, .group = k_performance});
    };
    number(o.step_start, "--perf-history-step-start", "first step of the window");
    number(o.step_end, "--perf-history-step-end", "last step of the window");
    number(o.min_points, "--perf-history-min-points", "use the run's last step if the window has fewer values");
    args.option(o.entity, {.names = "--perf-wandb-entity",
                           .value = "NAME",
                           .help = "W&B entity to search if the output does not name the run",
                           .group = k_performance});
    args.option(
        o.project,
        {.names = "--perf-wandb-project", .value = "NAME", .help = "W&B project to search", .group = k_performance});
}

}  // namespace

void describe_hold(cli::Args& args, loop::HoldOptions& hold, std::optional<std::string>& allocator) {
    constexpr const char* k_group = "Held development TPU";
    args.flag(
        hold.on,
        {.names = "--hold-dev-tpu", .help = "hold a dev TPU for the whole run", .group = k_group, .common = true});
    args.option(hold.policy, k_hold,
                {.names = "--hold-dev-tpu-policy",
                 .value = "POLICY",
                 .help = "what to do if no TPU is available",
                 .group = k_group});
    args.option(allocator, {.names = "--dev-tpu-allocator",
                            .value = "CMD",
                            .help = "program that allocates and holds the TPU",
                            .group = k_group,
                            .default_text = "dev_tpu_allocator in gdnctl.toml"});
    args.option(hold.cluster,
                {.names = "--dev-tpu-cluster", .value = "NAME", .help = "cluster of the held TPU", .group = k_group});
    args.option(hold.fallback_clusters, {.names = "--dev-tpu-fallback-cluster",
                                         .value = "NAME",
                                         .help = "cluster to try if that one has no TPU",
                                         .group = k_group});
    args.option(hold.name,
                {.names = "--dev-tpu-name", .value = "NAME", .help = "name of the held TPU", .group = k_group});
    args.option(
        hold.type,
        {.names = "--dev-tpu-type", .value = "TYPE", .help = "accelerator to hold, such as v5p-8", .group = k_group});
    args.option(hold.sync_path, {.names = "--dev-tpu-sync-path",
                                 .value = "PATH",
                                 .help = "folder to copy to the TPU",
                                 .group = k_group,
                                 .complete = cli::Complete::directory});
    args.option(hold.ready_timeout_s, {.names = "--dev-tpu-ready-timeout",
                                       .value = "S",
                                       .help = "give up an allocation after this many seconds",
                                       .group = k_group});
    args.option(hold.allocate_attempts, {.names = "--dev-tpu-allocate-attempts",
                                         .value = "N",
                                         .help = "number of times to try all clusters",
                                         .group = k_group});
    args.option(
        hold.allocate_retry_sleep_s,
        {.names = "--dev-tpu-allocate-retry-sleep", .value = "S", .help = "pause between passes", .group = k_group});
    args.option(hold.stop_timeout_s, {.names = "--dev-tpu-stop-timeout",
                                      .value = "S",
                                      .help = "force a release after this many seconds",
                                      .group = k_group});
    args.option(hold.allocate_log, {.names = "--dev-tpu-allocate-log",
                                    .value = "PATH",
                                    .help = "log of the allocation",
                                    .group = k_group,
                                    .default_text = "dev_tpu_allocate.log in the log directory",
                                    .complete = cli::Complete::file});
    args.flag(hold.verbose, {.names = "--dev-tpu-verbose",
                             .help = "show and log every step of the allocation; passed on to an allocator",
                             .group = k_group});
}

void describe_perf_policy(cli::Args& args, loop::PerfOptions& o, bool evolve) {
    args.option(o.policy_file, {.names = "--perf-policy-file",
                                .value = "PATH",
                                .help = "policy file; overrides the target's `gates` and the built-in policy",
                                .group = k_performance,
                                .complete = cli::Complete::file});
    args.option(o.regression_policy, k_regression_policies,
                {.names = "--perf-regression-policy",
                 .value = "POLICY",
                 .help = "what to do with a candidate that is rejected",
                 .group = k_performance});
    const auto share = [&args](std::optional<double>& value, std::string_view names, std::string_view help,
                               std::string_view usual) {
        args.option(value,
                    {.names = names, .value = "PCT", .help = help, .group = k_performance, .default_text = usual});
    };
    share(o.min_improvement_pct, "--perf-min-improvement-pct",
          evolve ? "smallest gain, in percent, that makes a new champion; 0.5 with --mode evolve"
                 : "smallest gain, in percent, that makes a new champion",
          "0.25");
    share(o.max_regression_pct, "--perf-max-regression-pct",
          "largest loss, in percent, that does not count as a regression", "1.0");
    share(o.override_pct, "--perf-gate-override-pct", "skip the gates for a gain of this many percent", "5.0");
    for (const loop::LimitOption& limit : loop::limit_options()) {
        args.option(o.limits[std::string(limit.limit)], {.names = limit.option,
                                                         .value = "MS",
                                                         .help = limit.help,
                                                         .group = "Performance gates",
                                                         .default_text = limit.usual});
    }
}

void describe_gates(cli::Args& args, loop::GateChoices& choices) {
    loop::ValidationOptions& v = choices.validation;
    args.option(v.mode, k_validation_modes,
                {.names = "--validation-mode",
                 .value = "MODE",
                 .help = "what each candidate must pass on the target's device",
                 .group = k_validation,
                 .common = true});
    describe_validation(args, v);
    describe_profile(args, v);
    describe_perf(args, choices.perf);
    describe_recorded(args, choices.perf.recorded);
    describe_perf_policy(args, choices.perf, true);
    args.note_use("--validation-", choices.used);
    args.note_use("--perf-", choices.used);
    args.check([&choices] { return loop::check_gates(choices); });
}

}  // namespace gdnctl::commands
