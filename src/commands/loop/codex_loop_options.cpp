// The options of codex-loop: those of the first version, then later ones.
#include <array>

#include "commands/loop/codex_loop.h"
#include "commands/loop/codex_loop_evolve.h"
#include "commands/loop/loop_gate_options.h"

namespace gdnctl::commands::codex_loop {

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
    constexpr const char* k_group = "Agent";
    args.option(o.agent, k_agents,
                {.names = "--agent", .value = "KIND", .help = "agent to run", .group = k_group, .common = true});
    args.option(o.agent_command, {.names = "--agent-command",
                                  .value = "CMD",
                                  .help = "shell command line of --agent command",
                                  .group = k_group,
                                  .common = true});
    args.option(o.agent_env, {.names = "--agent-env",
                              .value = "NAME",
                              .help = "pass this environment variable to the agent",
                              .group = k_group});
    args.option(options.model, {.names = "--model",
                                .value = "NAME",
                                .help = "model; empty: the agent's own choice",
                                .group = k_group,
                                .default_text = LoopOptions{}.model,
                                .common = true});
    args.option(o.codex_bin, {.names = "--codex-bin",
                              .value = "PATH",
                              .help = "the codex program",
                              .group = k_group,
                              .default_text = "found on PATH",
                              .complete = cli::Complete::file});
    args.option(o.reasoning_effort,
                {.names = "--reasoning-effort", .value = "LEVEL", .help = "reasoning effort", .group = k_group});
    args.option(o.codex_profile,
                {.names = "--codex-profile", .value = "NAME", .help = "Codex configuration profile", .group = k_group});
    args.flag(o.search, {.names = "--search", .help = "let the agent search the web", .group = k_group});
    args.flag(o.codex_ephemeral, {.names = "--codex-ephemeral|--no-codex-ephemeral",
                                  .help = "do not let codex keep sessions (failed attempts then have no token counts)",
                                  .group = k_group});
    args.flag(o.strict_preflight,
              {.names = "--strict-preflight", .help = "refuse a model that codex does not know", .group = k_group});
}

void describe_limits(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char* k_group = "Agent";
    args.option(o.codex_timeout_s, {.names = "--codex-timeout-seconds",
                                    .value = "S",
                                    .help = "stop an attempt after S seconds (0: no limit)",
                                    .group = k_group});
    args.option(o.codex_idle_timeout_s, {.names = "--codex-idle-timeout-seconds",
                                         .value = "S",
                                         .help = "stop an attempt after S seconds without activity (0: no limit)",
                                         .group = k_group});
    args.option(
        o.codex_busy_timeout_s,
        {.names = "--codex-busy-timeout-seconds",
         .value = "S",
         .help = "stop an attempt after S seconds without activity while the agent runs a command (0: no limit)",
         .group = k_group});
    args.option(o.codex_max_tokens, {.names = "--codex-max-tokens",
                                     .value = "N",
                                     .help = "stop an attempt after N tokens (0: no limit)",
                                     .group = k_group});
    args.option(o.codex_max_compactions, {.names = "--codex-max-compactions",
                                          .value = "N",
                                          .help = "stop an attempt after N context summaries (negative: no limit)",
                                          .group = k_group});
    args.option(o.codex_max_requests, {.names = "--codex-max-requests",
                                       .value = "N",
                                       .help = "stop an attempt after N model requests (0: no limit)",
                                       .group = k_group});
    args.option(o.codex_max_wait_s, {.names = "--codex-max-wait",
                                     .value = "S",
                                     .help = "wait at most S seconds per iteration for the model's provider",
                                     .group = k_group});
    args.flag(o.keep_background, {.names = "--keep-background",
                                  .help = "leave background processes of a successful attempt running",
                                  .group = k_group});
    args.flag(o.show_file_updates,
              {.names = "--show-file-updates", .help = "show the diffs that the agent prints", .group = k_group});
}

void describe_prompt(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char* k_group = "Prompt";
    args.option(o.prompt_file, {.names = "--prompt-file",
                                .value = "PATH",
                                .help = "template of the prompt",
                                .group = k_group,
                                .default_text = "the target's",
                                .complete = cli::Complete::file});
    args.option(o.directives, {.names = "--directive",
                               .value = "TEXT",
                               .help = "add guidance for this run after the prompt",
                               .group = k_group});
    args.option(o.directive_files, {.names = "--directive-file",
                                    .value = "PATH",
                                    .help = "add guidance from a file",
                                    .group = k_group,
                                    .complete = cli::Complete::file});
    args.option(o.directive_presets, {.names = "--directive-preset",
                                      .value = "NAME",
                                      .help = "add a preset by name",
                                      .group = k_group,
                                      .common = true});
    args.option(o.self_command, {.names = "--self-command",
                                 .value = "WORDS",
                                 .help = "how directives call gdnctl",
                                 .group = k_group,
                                 .default_text = "as it was called"});
}

void describe_checks(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char* k_group = "Checks and failures";
    args.option(o.post_checks, {.names = "--post-check",
                                .value = "CMD",
                                .help = "run CMD after each iteration; it must succeed",
                                .group = k_group,
                                .common = true});
    args.option(o.post_check_policy, k_policies,
                {.names = "--post-check-policy",
                 .value = "POLICY",
                 .help = "what to do if a post-check fails",
                 .group = k_group});
    args.option(
        o.post_check_retries,
        {.names = "--post-check-retries", .value = "N", .help = "retries of each post-check", .group = k_group});
    args.option(o.post_check_timeout_s, {.names = "--post-check-timeout",
                                         .value = "SECONDS",
                                         .help = "fail a post-check after this time (0: no limit)",
                                         .group = k_group});
    args.option(o.no_commit_policy, k_policies,
                {.names = "--no-commit-policy",
                 .value = "POLICY",
                 .help = "what to do if an iteration makes no commit",
                 .group = k_group});
    args.flag(o.allow_no_commit,
              {.names = "--allow-no-commit", .help = "accept iterations without a commit", .group = k_group});
    args.option(o.iteration_error_policy, k_policies,
                {.names = "--iteration-error-policy",
                 .value = "POLICY",
                 .help = "what to do if the iteration itself fails: dirty tree, git",
                 .group = k_group});
    args.option(o.protected_policy, k_protected,
                {.names = "--protected-policy",
                 .value = "POLICY",
                 .help = "what to do if an iteration changes protected files",
                 .group = k_group});
    args.option(o.idea_policy, k_ideas,
                {.names = "--idea-policy",
                 .value = "POLICY",
                 .help = "what to do with an idea that was rejected twice",
                 .group = k_group});
    args.option(o.max_failures, {.names = "--max-failures",
                                 .value = "N",
                                 .help = "stop after more than N counted failures (negative: never)",
                                 .group = k_group});
    args.option(o.codex_retries, {.names = "--codex-retries",
                                  .value = "N",
                                  .help = "retries of a failed attempt within an iteration",
                                  .group = k_group});
    args.option(o.retry_sleep_seconds,
                {.names = "--retry-sleep-seconds", .value = "S", .help = "pause before a retry", .group = k_group});
    args.flag(o.resilient, {.names = "--resilient",
                            .help = "continue after failures; relaxes some policies and shows which",
                            .group = k_group,
                            .common = true});
}

void describe_tree(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char* k_group = "Repository";
    args.option(o.workdir, {.names = "--workdir",
                            .value = "PATH",
                            .help = "where the agent and the checks run",
                            .group = k_group,
                            .default_text = "the root of the repository",
                            .complete = cli::Complete::directory});
    args.option(o.isolation, k_isolations,
                {.names = "--isolation", .value = "WHERE", .help = "where iterations change files", .group = k_group});
    args.option(o.worktree_links, {.names = "--worktree-link",
                                   .value = "PATH",
                                   .help = "link this ignored path into the worktree, such as .venv",
                                   .group = k_group});
    args.flag(o.allow_dirty, {.names = "--allow-dirty", .help = "do not require a clean tree", .group = k_group});
    args.option(o.dirty_policy, k_dirty,
                {.names = "--dirty-policy",
                 .value = "POLICY",
                 .help = "what to do if the checkout has uncommitted changes",
                 .group = k_group});
    args.option(o.stash_restore_policy, k_restore,
                {.names = "--stash-restore-policy",
                 .value = "POLICY",
                 .help = "what to do if stashed work cannot be restored",
                 .group = k_group});
    args.option(o.sync.policy, k_sync,
                {.names = "--sync-main-policy",
                 .value = "WHEN",
                 .help = "when to merge another branch into yours",
                 .group = k_group});
    args.option(
        o.sync.remote,
        {.names = "--sync-main-remote", .value = "NAME", .help = "remote of the branch to merge", .group = k_group});
    args.option(o.sync.branch,
                {.names = "--sync-main-branch", .value = "NAME", .help = "branch to merge", .group = k_group});
    args.option(o.sync_main_conflict_policy, k_conflicts,
                {.names = "--sync-main-conflict-policy",
                 .value = "POLICY",
                 .help = "what to do if the merge conflicts",
                 .group = k_group});
}

void describe_run(cli::Args& args, Options& options) {
    LoopOptions& o = options.loop;
    constexpr const char* k_group = "Run";
    args.option(options.iterations, {.names = "--iterations",
                                     .value = "N",
                                     .help = "number of iterations; with --resume, the run's total (required without "
                                             "--resume or --mode evolve)",
                                     .group = k_group,
                                     .common = true});
    args.option(o.sleep_seconds, {.names = "--sleep-seconds",
                                  .value = "S",
                                  .help = "pause between iterations; doubles with each consecutive failure",
                                  .group = k_group});
    args.option(o.log_dir, {.names = "--log-dir",
                            .value = "PATH",
                            .help = "folder for journal, prompts and transcripts",
                            .group = k_group,
                            .complete = cli::Complete::directory});
    args.option(o.log_file, {.names = "--hillclimb-log-file",
                             .value = "PATH",
                             .help = "running log that gets an entry per iteration, with gates",
                             .group = k_group,
                             .default_text = "the target's log",
                             .complete = cli::Complete::file});
    args.option(o.stamp_mode, k_stamps,
                {.names = "--stamp-mode",
                 .value = "MODE",
                 .help = "where to record an iteration's log entry and its commit",
                 .group = k_group});
    args.option(o.keep_iterations, {.names = "--keep-iterations",
                                    .value = "N",
                                    .help = "keep the files of the last N iterations in the log directory",
                                    .group = k_group});
    args.flag(o.resume, {.names = "--resume",
                         .help = "continue the run in the log directory, with its options",
                         .group = k_group,
                         .common = true});
    args.option(options.max_wall, {.names = "--max-wall",
                                   .value = "TIME",
                                   .help = "start no iteration after this time (90m, 8h, 7d; plain: seconds)",
                                   .group = k_group,
                                   .common = true});
    args.option(o.max_tokens,
                {.names = "--max-tokens", .value = "N", .help = "start no iteration after N tokens", .group = k_group});
    args.option(o.max_tpu_minutes, {.names = "--max-tpu-minutes",
                                    .value = "N",
                                    .help = "start no iteration after N minutes on a TPU",
                                    .group = k_group});
    args.option(o.plateau, {.names = "--plateau",
                            .value = "K",
                            .help = "stop after K iterations without a new champion",
                            .group = k_group});
    args.flag(o.fail_if_no_win,
              {.names = "--fail-if-no-win", .help = "exit with 3 if nothing was accepted", .group = k_group});
    args.flag(options.dry_run, {.names = "--dry-run",
                                .help = "show the agent's command line, the prompt and the plan; do nothing (evolve: a "
                                        "whole run with a scripted agent in a temporary repository)",
                                .group = k_group,
                                .common = true});
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
    args.see_also("lint-log");
    args.see_also("ray-test");
    args.see_also("evolve log");
    args.see_also("docs/codex-loop.md");
    args.see_also("docs/agents.md");
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
