#include <array>

#include "commands/jobs/job_options.h"
#include "commands/loop/codex_loop.h"

namespace gdnctl::commands {

namespace {

using loop::OracleMode;
using loop::RegressionPolicy;
using loop::ValidationMode;
using loop::ValidationPolicy;
using Suite = TestSelection::Suite;

constexpr std::array<cli::Choice<ValidationMode>, 4> k_validation_modes = {
    {{"auto", ValidationMode::automatic, "required with any other validation or performance option, otherwise off"},
     {"required", ValidationMode::required, "tests and a profile"},
     {"profile-only", ValidationMode::profile_only, "a profile"},
     {"off", ValidationMode::off, "nothing"}}};
constexpr std::array<cli::Choice<OracleMode>, 3> k_oracle_modes = {
    {{"auto", OracleMode::automatic, "if the target has an oracle and the base passes it"},
     {"required", OracleMode::required, "always; the run ends if the base's kernel cannot be run"},
     {"off", OracleMode::off, "never"}}};
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

constexpr std::string_view k_validation = "Validate on a device";
constexpr std::string_view k_profile = "Profile each candidate";
constexpr std::string_view k_performance = "Judge by speed";
constexpr ProfileNames k_profile_names = {k_profile, "--validation-profile-", "start-step", "num-steps-window",
                                          "prefix of the run's name; _iterNNN follows"};

void describe_where(cli::Args& args, loop::ValidationOptions& o) {
    args.option(o.clusters, "--validation-ray-cluster NAME",
                "cluster to validate on (`local`: this machine); the next one is tried after an infrastructure failure",
                {.group = k_validation, .complete = cli::Complete::cluster});
    args.flag(o.cluster_auto, "--validation-ray-cluster-auto|--no-validation-ray-cluster-auto",
              "use all clusters of the repository that offer the TPU type", {.group = k_validation});
    args.option(o.cluster_exclude, "--validation-ray-cluster-exclude TEXT",
                "skip discovered clusters with TEXT in their names",
                {.group = k_validation, .default_text = "vllm, big-run"});
    args.flag(o.cross_tpu_tests, "--validation-cross-tpu-test-fallback|--no-validation-cross-tpu-test-fallback",
              "also run tests (never profiles) on any other v5p, v5e or v6e in these clusters",
              {.group = k_validation});
    args.option(o.tpu, "--validation-ray-tpu TYPE", "accelerator for the tests; auto: the cluster's own",
                {.group = k_validation});
    args.flag(o.dev_no_sync, "--validation-dev-no-sync", "do not copy the tree to the held TPU first",
              {.group = k_validation});
}

void describe_validation(cli::Args& args, loop::ValidationOptions& o) {
    args.option(o.oracle, k_oracle_modes, "--validation-oracle MODE",
                "judge the kernel of [targets.NAME.oracle] before the tests, in their job", {.group = k_validation});
    args.option(o.policy, k_gate_policies, "--validation-policy POLICY",
                "what to do with an iteration whose tests or profile fail", {.group = k_validation});
    args.option(o.max_attempts, "--validation-max-attempts N",
                "passes over all clusters after infrastructure failures (-1: up to 30)", {.group = k_validation});
    args.option(o.retry_sleep_s, "--validation-retry-sleep SECONDS", "pause between passes, in seconds",
                {.group = k_validation});
    args.option(o.test_timeout_s, "--validation-ray-test-timeout SECONDS", "stop a test job after this time",
                {.group = k_validation});
    args.option(o.profile_timeout_s, "--validation-ray-profile-timeout SECONDS", "stop a profile job after this time",
                {.group = k_validation});
    args.option(o.log_tail, "--validation-ray-log-tail N",
                "search the last N lines of a failed job's log for the first failing case, and "
                "show six lines of it (0: show nothing)",
                {.group = k_validation});
    args.option(o.suite, k_gate_suites, "--validation-tests SUITE", "pytest suites to run", {.group = k_validation});
    args.option(o.pytest_args, "--validation-pytest-args WORDS", "extra pytest arguments, quoted as for a shell",
                {.group = k_validation});
    describe_where(args, o);
}

void describe_other_cross_entropy(cli::Args& args, loop::ValidationOptions& o) {
    args.option(o.ce_compare_implementation, k_ce_implementations,
                "--validation-profile-ce-compare-implementation NAME",
                "also profile each candidate with this implementation, for the record; auto: no second profile",
                {.group = k_profile});
    args.option(o.ce_compare_bwd_mode, k_gate_ce_other_backward, "--validation-profile-ce-bwd-compare-mode MODE",
                "also profile each candidate with this backward pass", {.group = k_profile});
}

void describe_profile(cli::Args& args, loop::ValidationOptions& o) {
    ProfileSettings& s = o.profile;
    args.option(s.tpu, "--validation-profile-tpu TYPE", "accelerator for the run", {.group = k_profile});
    describe_model(args, s, k_profile_names);
    args.flag(s.dry_run, "--validation-profile-dry-run", "submit a run that only shows what it would do",
              {.group = k_profile});
    args.option(o.profile_env, "--validation-profile-env KEY=VALUE", "another setting of the run",
                {.group = k_profile});
    args.option(o.marin_prefix, "--validation-profile-marin-prefix URL", "bucket for profiles on the held TPU",
                {.group = k_profile, .default_text = "the bucket of its region"});
    describe_cross_entropy(args, s, k_profile_names);
    describe_other_cross_entropy(args, o);
    describe_run_name(args, s, k_profile_names);
}

void describe_perf(cli::Args& args, loop::PerfOptions& o) {
    args.option(o.mode, k_perf_modes, "--perf-mode MODE", "whether to judge candidates by speed",
                {.group = k_performance});
    args.option(o.state_file, "--perf-state-file PATH", "file for champions and measurements",
                {.group = k_performance,
                 .default_text = "perf_state.json of the log directory",
                 .complete = cli::Complete::file});
    args.option(o.metric, "--perf-metric NAME", "metric of the profile to judge by",
                {.group = k_performance, .default_text = "the target's, or throughput/mfu"});
    args.option(o.pairs, "--perf-pairs N",
                "maximum number of pairs of profiles (champion and candidate alternate): 3, 5 or 9; 1: compare one "
                "profile with the champion's recorded value",
                {.group = k_performance});
    args.option(o.upper_bound_step_ms, "--perf-upper-bound-step-ms MS",
                "step time of the control run with attention layers only", {.group = k_performance});
}

void describe_recorded(cli::Args& args, loop::RecordedOptions& o) {
    args.option(o.aggregation, k_aggregations, "--perf-aggregation KIND", "value to use for a run recorded at W&B",
                {.group = k_performance});
    args.option(o.average, k_averages, "--perf-history-aggregation AVERAGE", "average to use in the window",
                {.group = k_performance});
    const auto number = [&args](std::int64_t& value, std::string_view names, std::string_view help) {
        args.option(value, {.names = names, .value = "N", .help = help, .group = k_performance});
    };
    number(o.step_start, "--perf-history-step-start", "first step of the window");
    number(o.step_end, "--perf-history-step-end", "last step of the window");
    number(o.min_points, "--perf-history-min-points", "use the run's last step if the window has fewer values");
    args.option(o.entity, "--perf-wandb-entity NAME", "W&B entity to search if the output does not name the run",
                {.group = k_performance});
    args.option(o.project, "--perf-wandb-project NAME", "W&B project to search", {.group = k_performance});
}

}  // namespace

void describe_hold(cli::Args& args, loop::HoldOptions& hold, std::optional<std::string>& allocator) {
    constexpr const char* k_group = "Hold a development TPU";
    args.flag(hold.on, "--hold-dev-tpu", "hold a dev TPU for the whole run", {.group = k_group, .common = true});
    args.option(hold.policy, k_hold, "--hold-dev-tpu-policy POLICY", "what to do if no TPU is available",
                {.group = k_group});
    args.option(allocator, "--dev-tpu-allocator CMD", "program that allocates and holds the TPU",
                {.group = k_group, .default_text = "dev_tpu_allocator in gdnctl.toml"});
    args.option(hold.cluster, "--dev-tpu-cluster NAME", "cluster of the held TPU", {.group = k_group});
    args.option(hold.fallback_clusters, "--dev-tpu-fallback-cluster NAME", "cluster to try if that one has no TPU",
                {.group = k_group});
    args.option(hold.name, "--dev-tpu-name NAME", "name of the held TPU", {.group = k_group});
    args.option(hold.type, "--dev-tpu-type TYPE", "accelerator to hold, such as v5p-8", {.group = k_group});
    args.option(hold.sync_path, "--dev-tpu-sync-path PATH", "folder to copy to the TPU",
                {.group = k_group, .complete = cli::Complete::directory});
    args.option(hold.ready_timeout_s, "--dev-tpu-ready-timeout S", "give up an allocation after this many seconds",
                {.group = k_group});
    args.option(hold.allocate_attempts, "--dev-tpu-allocate-attempts N", "number of times to try all clusters",
                {.group = k_group});
    args.option(hold.allocate_retry_sleep_s, "--dev-tpu-allocate-retry-sleep S", "pause between passes",
                {.group = k_group});
    args.option(hold.stop_timeout_s, "--dev-tpu-stop-timeout S", "force a release after this many seconds",
                {.group = k_group});
    args.option(hold.allocate_log, "--dev-tpu-allocate-log PATH", "log of the allocation",
                {.group = k_group,
                 .default_text = "dev_tpu_allocate.log in the log directory",
                 .complete = cli::Complete::file});
    args.flag(hold.verbose, "--dev-tpu-verbose", "show and log every step of the allocation; passed on to an allocator",
              {.group = k_group});
}

void describe_perf_policy(cli::Args& args, loop::PerfOptions& o, bool evolve) {
    args.option(o.policy_file, "--perf-policy-file PATH",
                "policy file; overrides the target's `gates` and the built-in policy",
                {.group = k_performance, .complete = cli::Complete::file});
    args.option(o.regression_policy, k_regression_policies, "--perf-regression-policy POLICY",
                "what to do with a candidate that is rejected", {.group = k_performance});
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
                                                         .group = "Limit the parts of a step",
                                                         .default_text = limit.usual});
    }
}

void describe_gates(cli::Args& args, loop::GateChoices& choices) {
    loop::ValidationOptions& v = choices.validation;
    args.option(v.mode, k_validation_modes, "--validation-mode MODE",
                "what each candidate must pass on the target's device", {.group = k_validation, .common = true});
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

namespace gdnctl::commands::codex_loop {

// The options of codex-loop: those of the first version, then later ones.

namespace {

using namespace loop;

constexpr std::array<cli::Choice<Policy>, 3> k_policies = {
    {{"fail", Policy::fail, "stop"},
     {"count-failure", Policy::count_failure, "count it against --max-failures and continue"},
     {"continue", Policy::go_on, "ignore it and continue"}}};
constexpr std::array<cli::Choice<Policy>, 2> k_protected = {
    {{"fail", Policy::fail, "stop with exit code 7"},
     {"count-failure", Policy::count_failure, "reject the iteration, count it against --max-failures and continue"}}};
constexpr std::array<cli::Choice<IdeaChoice>, 4> k_ideas = {
    {{"auto", IdeaChoice::automatic, "warn with gates, otherwise off"},
     {"off", IdeaChoice::off, "do nothing"},
     {"warn", IdeaChoice::warn, "warn and continue"},
     {"block", IdeaChoice::block, "reject it before it is tested, unless the agent's report gives a new argument"}}};
constexpr std::array<cli::Choice<DirtyPolicy>, 2> k_dirty = {
    {{"fail", DirtyPolicy::fail, "fail the iteration"},
     {"stash", DirtyPolicy::stash, "stash uncommitted work until the iteration has ended"}}};
constexpr std::array<cli::Choice<StashRestorePolicy>, 2> k_restore = {
    {{"warn-keep", StashRestorePolicy::warn_keep, "keep the stash and continue"},
     {"fail", StashRestorePolicy::fail, "fail the iteration"}}};
constexpr std::array<cli::Choice<ConflictPolicy>, 2> k_conflicts = {
    {{"fail", ConflictPolicy::fail, "fail the iteration"},
     {"skip", ConflictPolicy::skip, "continue without the merge"}}};
constexpr std::array<cli::Choice<SyncPolicy>, 3> k_sync = {
    {{"off", SyncPolicy::off}, {"once", SyncPolicy::once}, {"each-iteration", SyncPolicy::each_iteration}}};
constexpr std::array<cli::Choice<AgentKind>, 2> k_agents = {
    {{"codex", AgentKind::codex, "the Codex CLI"},
     {"command", AgentKind::command, "any program that reads the prompt on standard input and edits the tree"}}};
constexpr std::array<cli::Choice<IsolationChoice>, 3> k_isolations = {
    {{"auto", IsolationChoice::automatic, "worktree with a gate or a budget, otherwise in place"},
     {"worktree", IsolationChoice::worktree, "in a separate checkout; only accepted work moves the branch"},
     {"inplace", IsolationChoice::inplace, "in the checkout itself"}}};

constexpr std::array<cli::Choice<StampMode>, 6> k_stamps = {
    {{"auto", StampMode::automatic, "commit with validation or performance, otherwise off"},
     {"commit", StampMode::commit, "in a separate log commit"},
     {"next-entry", StampMode::next_entry, "like commit, but the agent's own entry is stamped with the next one"},
     {"notes", StampMode::notes, "in refs/notes/gdnctl only; log and branch do not change"},
     {"off", StampMode::off, "no entry, no stamp"},
     {"inplace", StampMode::inplace, "stamp the agent's entry in the checkout, which is then dirty"}}};

void describe_agent(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char* k_group = "Choose the agent";
    args.option(o.agent, k_agents, "--agent KIND", "agent to run", {.group = k_group, .common = true});
    args.option(o.agent_command, "--agent-command CMD", "shell command line of --agent command",
                {.group = k_group, .common = true});
    args.option(o.agent_env, "--agent-env NAME", "pass this environment variable to the agent", {.group = k_group});
    args.option(options.model, "--model NAME", "model; empty: the agent's own choice",
                {.group = k_group, .default_text = LoopOptions{}.model, .common = true});
    args.option(o.codex_bin, "--codex-bin PATH", "the codex program",
                {.group = k_group, .default_text = "found on PATH", .complete = cli::Complete::file});
    args.option(o.reasoning_effort, "--reasoning-effort LEVEL", "reasoning effort", {.group = k_group});
    args.option(o.codex_profile, "--codex-profile NAME", "Codex configuration profile", {.group = k_group});
    args.flag(o.search, "--search", "let the agent search the web", {.group = k_group});
    args.flag(o.codex_ephemeral, "--codex-ephemeral|--no-codex-ephemeral",
              "do not let codex keep sessions (failed attempts then have no token counts)", {.group = k_group});
    args.flag(o.strict_preflight, "--strict-preflight", "refuse a model that codex does not know", {.group = k_group});
}

void describe_limits(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char* k_group = "Limit an attempt";
    args.option(o.codex_timeout_s, "--codex-timeout-seconds S", "stop an attempt after S seconds (0: no limit)",
                {.group = k_group});
    args.option(o.codex_idle_timeout_s, "--codex-idle-timeout-seconds S",
                "stop an attempt after S seconds without activity (0: no limit)", {.group = k_group});
    args.option(o.codex_busy_timeout_s, "--codex-busy-timeout-seconds S",
                "stop an attempt after S seconds without activity while the agent runs a command (0: no limit)",
                {.group = k_group});
    args.option(o.codex_max_tokens, "--codex-max-tokens N", "stop an attempt after N tokens (0: no limit)",
                {.group = k_group});
    args.option(o.codex_max_compactions, "--codex-max-compactions N",
                "stop an attempt after N context summaries (negative: no limit)", {.group = k_group});
    args.option(o.codex_max_requests, "--codex-max-requests N", "stop an attempt after N model requests (0: no limit)",
                {.group = k_group});
    args.option(o.codex_max_wait_s, "--codex-max-wait S",
                "wait at most S seconds per iteration for the model's provider", {.group = k_group});
    args.flag(o.keep_background, "--keep-background", "leave background processes of a successful attempt running",
              {.group = k_group});
    args.flag(o.show_file_updates, "--show-file-updates", "show the diffs that the agent prints", {.group = k_group});
}

void describe_prompt(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char* k_group = "Tell the agent what to do";
    args.option(o.prompt_file, "--prompt-file PATH", "template of the prompt",
                {.group = k_group, .default_text = "the target's", .complete = cli::Complete::file});
    args.option(o.directives, "--directive TEXT", "add guidance for this run after the prompt", {.group = k_group});
    args.option(o.directive_files, "--directive-file PATH", "add guidance from a file",
                {.group = k_group, .complete = cli::Complete::file});
    args.option(o.directive_presets, "--directive-preset NAME", "add a preset by name",
                {.group = k_group, .complete = cli::Complete::preset, .common = true});
    args.option(o.self_command, "--self-command WORDS", "how directives call gdnctl",
                {.group = k_group, .default_text = "as it was called"});
}

void describe_checks(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char *k_group = "Check each iteration", *k_failures = "Handle failures";
    args.option(o.post_checks, "--post-check CMD", "run CMD after each iteration; it must succeed",
                {.group = k_group, .common = true});
    args.option(o.post_check_policy, k_policies, "--post-check-policy POLICY", "what to do if a post-check fails",
                {.group = k_group});
    args.option(o.post_check_retries, "--post-check-retries N", "retries of each post-check", {.group = k_group});
    args.option(o.post_check_timeout_s, "--post-check-timeout SECONDS",
                "fail a post-check after this time (0: no limit)", {.group = k_group});
    args.option(o.no_commit_policy, k_policies, "--no-commit-policy POLICY",
                "what to do if an iteration makes no commit", {.group = k_failures});
    args.flag(o.allow_no_commit, "--allow-no-commit", "accept iterations without a commit", {.group = k_failures});
    args.option(o.iteration_error_policy, k_policies, "--iteration-error-policy POLICY",
                "what to do if the iteration itself fails: dirty tree, git", {.group = k_failures});
    args.option(o.protected_policy, k_protected, "--protected-policy POLICY",
                "what to do if an iteration changes protected files", {.group = k_group});
    args.option(o.idea_policy, k_ideas, "--idea-policy POLICY", "what to do with an idea that was rejected twice",
                {.group = k_group});
    args.option(o.max_failures, "--max-failures N", "stop after more than N counted failures (negative: never)",
                {.group = k_failures});
    args.option(o.codex_retries, "--codex-retries N", "retries of a failed attempt within an iteration",
                {.group = k_failures});
    args.option(o.retry_sleep_seconds, "--retry-sleep-seconds S", "pause before a retry", {.group = k_failures});
    args.flag(o.resilient, "--resilient", "continue after failures; relaxes some policies and shows which",
              {.group = k_failures, .common = true});
}

void describe_tree(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char* k_group = "Protect and update your checkout";
    args.option(o.workdir, "--workdir PATH", "where the agent and the checks run",
                {.group = k_group, .default_text = "the root of the repository", .complete = cli::Complete::directory});
    args.option(o.isolation, k_isolations, "--isolation WHERE", "where iterations change files", {.group = k_group});
    args.option(o.worktree_links, "--worktree-link PATH", "link this ignored path into the worktree, such as .venv",
                {.group = k_group});
    args.flag(o.allow_dirty, "--allow-dirty", "do not require a clean tree", {.group = k_group});
    args.option(o.dirty_policy, k_dirty, "--dirty-policy POLICY", "what to do if the checkout has uncommitted changes",
                {.group = k_group});
    args.option(o.stash_restore_policy, k_restore, "--stash-restore-policy POLICY",
                "what to do if stashed work cannot be restored", {.group = k_group});
    args.option(o.sync.policy, k_sync, "--sync-main-policy WHEN", "when to merge another branch into yours",
                {.group = k_group});
    args.option(o.sync.remote, "--sync-main-remote NAME", "remote of the branch to merge", {.group = k_group});
    args.option(o.sync.branch, "--sync-main-branch NAME", "branch to merge", {.group = k_group});
    args.option(o.sync_main_conflict_policy, k_conflicts, "--sync-main-conflict-policy POLICY",
                "what to do if the merge conflicts", {.group = k_group});
}

void describe_run(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char *k_group = "Start, resume and end a run", *k_records = "Keep records";
    args.option(options.iterations, "--iterations N",
                "number of iterations; with --resume, the run's total (required without "
                "--resume or --mode evolve)",
                {.group = k_group, .common = true});
    args.option(o.sleep_seconds, "--sleep-seconds S", "pause between iterations; doubles with each consecutive failure",
                {.group = k_group});
    args.option(o.log_dir, "--log-dir PATH", "folder for journal, prompts and transcripts",
                {.group = k_records, .complete = cli::Complete::directory});
    args.option(o.log_file, "--hillclimb-log-file PATH", "running log that gets an entry per iteration, with gates",
                {.group = k_records, .default_text = "the target's log", .complete = cli::Complete::file});
    args.option(o.stamp_mode, k_stamps, "--stamp-mode MODE", "where to record an iteration's log entry and its commit",
                {.group = k_records});
    args.option(o.keep_iterations, "--keep-iterations N",
                "keep the files of the last N iterations in the log directory", {.group = k_records});
    args.flag(o.resume, "--resume", "continue the run in the log directory, with its options",
              {.group = k_group, .common = true});
    args.option(options.max_wall, "--max-wall TIME", "start no iteration after this time (90m, 8h, 7d; plain: seconds)",
                {.group = k_group, .common = true});
    args.option(o.max_tokens, "--max-tokens N", "start no iteration after N tokens", {.group = k_group});
    args.option(o.max_tpu_minutes, "--max-tpu-minutes N", "start no iteration after N minutes on a TPU",
                {.group = k_group});
    args.option(o.plateau, "--plateau K", "stop after K iterations without a new champion", {.group = k_group});
    args.flag(o.fail_if_no_win, "--fail-if-no-win", "exit with 3 if nothing was accepted", {.group = k_group});
    args.flag(options.dry_run, "--dry-run",
              "show the agent's command line, the prompt and the plan; do nothing (evolve: a "
              "whole run with a scripted agent in a temporary repository)",
              {.group = k_group, .common = true});
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Runs unattended iterations of a coding agent on the repository. In each, the agent gets a prompt, changes "
        "code and commits; gdnctl stores its work on a ref, checks it, and keeps or rejects it. Every step is first "
        "recorded in a journal, so --resume continues after a crash, a reboot or a full disk.");
    args.about(
        "--resume uses the options that the run was started with. Give new totals and budgets (--iterations, --max-*, "
        "--plateau) if you want; any other difference is an error. Options can also be set in gdnctl.toml, in the "
        "table [codex-loop], by their names without the dashes: max-wall = \"8h\".");
    args.about(
        "A file STOP in the log directory ends the run after the current iteration. Ctrl-C ends it at once, keeps the "
        "agent's work and releases the dev TPU. The last line on stderr says why the run ended.");
    args.about(
        "--mode evolve searches a population of candidates instead: it needs a budget such as --max-attempts, takes "
        "the options of the group Evolve, and ignores those about your checkout and about consecutive failures.");
    describe_run(args, options);
    describe_agent(args, options);
    describe_limits(args, options);
    describe_prompt(args, options);
    describe_checks(args, options);
    describe_tree(args, options);
    describe_hold(args, options.loop.hold, options.allocator);
    describe_gates(args, options.gates);
    describe_evolve(args, options);
    args.note_given(options.given);
    args.exit_code(0, "all iterations ran, or a budget or STOP ended the run");
    args.exit_code(
        1,
        "a check failed (with its own status if it has one), the best candidate failed its final verification, "
        "or a required dev TPU was not available");
    args.exit_code(2, "usage or configuration error, or the iteration itself failed");
    args.exit_code(3, "no new commit, or nothing accepted with --fail-if-no-win");
    args.exit_code(4, "no cluster answers, or the same infrastructure failure three times in a row");
    args.exit_code(5, "a cluster refuses the token");
    args.exit_code(7, "another loop is running, or a protected file was changed");
    args.exit_code(124, "the agent reached a time limit (any other status: the agent's or the check's own)");
    args.exit_code(130, "stopped by a signal, after cleaning up");
    args.example("gdnctl codex-loop --iterations 5 --resilient --directive-preset triangular-inversion",
                 "run five iterations, continuing after failures");
    args.example("gdnctl codex-loop --iterations 5 --post-check \"gdnctl lint-log\"",
                 "run a check after each iteration");
    args.example("gdnctl codex-loop --resume", "continue an interrupted run with the options that it was started with");
    args.example("gdnctl codex-loop --iterations 1 --agent command --agent-command ./my-agent.sh",
                 "use your own program as the agent (committed, or an absolute path)");
    args.example("gdnctl codex-loop --mode evolve --max-attempts 30",
                 "search a population of candidates; promote the best one with `gdnctl evolve promote`");
    args.see_also({"lint-log", "ray-test", "evolve log", "docs/codex-loop.md", "docs/agents.md"});
    args.check([&options]() -> Status {
        if (options.max_wall && !parse_span(*options.max_wall)) {
            return fail(ErrorKind::usage,
                        "--max-wall: expected seconds, or a time such as 90m, 8h or 7d: " + *options.max_wall);
        }
        GDNCTL_TRY(check_mode(options));
        options.loop.iterations = options.iterations.value_or(0);
        return {};
    });
}

}  // namespace gdnctl::commands::codex_loop
