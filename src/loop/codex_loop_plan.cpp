#include "loop/codex_loop_plan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"
#include "core/log.h"
#include "core/log_timed.h"
#include "core/text.h"
#include "jobs/place.h"
#include "loop/engine/artefacts.h"
#include "loop/engine/earlier_run.h"
#include "loop/engine/loop_agent.h"
#include "loop/engine/messages.h"
#include "loop/gates/cluster_preflight.h"
#include "loop/gates/validation_gate.h"
#include "loop/measure/slot_links.h"
#include "loop/prompt/prompt.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/random_hex.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

Result<Document> find_prompt(const LoopOptions& options, const Target& target, const LoopPlan& plan,
                             const Context& context) {
    if (options.prompt_file.empty()) return default_prompt(target, plan.root);
    const fs::path at_root = plan.root / options.prompt_file;
    std::error_code problem;
    return prompt_from_file(fs::exists(at_root, problem) ? at_root : context.cwd / options.prompt_file);
}

// The running log as git names it; links are followed, as the log tools do. Empty: none, or outside of the repository.
std::string log_in_repository(const LoopOptions& options, const Target& target, const fs::path& root) {
    const fs::path named = options.log_file.empty() ? fs::path(target.log) : fs::path(options.log_file);
    if (named.empty()) return {};
    std::error_code problem;
    const fs::path inside =
        fs::weakly_canonical(root / named, problem).lexically_relative(fs::weakly_canonical(root, problem));
    return inside.empty() || *inside.begin() == ".." ? std::string() : inside.generic_string();
}

// Options that were given and change nothing.
void warn_of_unused(const LoopOptions& given, const LoopPlan& plan) {
    if (given.allow_dirty && given.dirty_policy == DirtyPolicy::stash) {
        log::warning("--allow-dirty: nothing is stashed, --dirty-policy is not used");
    }
    if (!given.log_file.empty() && plan.stamps == StampMode::off) {
        log::warning("--hillclimb-log-file has no effect: {}",
                     given.stamp_mode == StampMode::off
                         ? "--stamp-mode off writes no entry"
                         : "only runs with --validation-*, --perf-* or --stamp-mode write the log");
    }
    if (given.max_tokens && given.agent == AgentKind::command) {
        log::warning("--max-tokens has no effect: --agent command reports no token counts");
    }
    const auto modes = resolve_modes(plan.gates);
    if (given.plateau && modes && !modes->perf) {
        log::warning(
            "--plateau counts iterations without a promotion: nothing is promoted without --perf-mode required");
    }
    for (const auto& link : given.worktree_links) {
        std::error_code problem;
        if (plan.isolation == Isolation::inplace && !given.resume) {
            log::warning("--worktree-link {} has no effect: iterations work in place", link);
        } else if (!fs::exists(plan.root / link, problem)) {
            log::warning("--worktree-link {}: {} does not exist", link, (plan.root / link).string());
        }
    }
}

// The first line of a run that would keep wrong work as gladly as right work.
Status warn_of_unchecked(const LoopPlan& plan) {
    GDNCTL_TRY_ASSIGN(const GateModes modes, resolve_modes(plan.gates));
    if (modes.validation != ValidationMode::off || !plan.options.post_checks.empty()) return {};
    log::warning(
        "nothing checks this run: every commit is kept (--post-check COMMAND checks each one, --validation-mode "
        "required runs the target's test and profile)");
    return {};
}

Result<StampMode> stamps_of(const LoopPlan& plan) {
    const StampMode mode = plan.options.stamp_mode;
    if (mode == StampMode::automatic) return plan.options.gates.used ? StampMode::commit : StampMode::off;
    if (mode != StampMode::inplace) return mode;
    if (plan.isolation != Isolation::inplace) {
        return fail(ErrorKind::usage,
                    "--stamp-mode inplace needs --isolation inplace: it edits the log in your checkout.",
                    "drop it: the stamp then goes into the log's own commit");
    }
    GDNCTL_TRY_ASSIGN(const GateModes modes, resolve_modes(plan.gates));
    const RegressionPolicy policy = plan.gates.perf.regression_policy;
    if (modes.perf &&
        (policy == RegressionPolicy::revert_count_failure || policy == RegressionPolicy::revert_continue)) {
        return fail(ErrorKind::usage,
                    fmt::format("--stamp-mode inplace cannot go with --perf-regression-policy {}: the stamped log "
                                "would block the revert.",
                                to_text(policy)),
                    "drop it: the stamp then goes into the log's own commit");
    }
    return mode;
}

}  // namespace

Result<LoopPlan> make_loop_plan(const CodexLoopRequest& request, const Context& context) {
    LoopPlan plan;
    plan.options = request.options;
    LoopOptions& options = plan.options;
    GDNCTL_TRY(check_options(options));
    for (auto& link : options.worktree_links) {
        GDNCTL_TRY_ASSIGN(link, slot_link(link));
    }
    plan.gates = request.gates;
    options.gates = gate_options_of(plan.gates);
    const auto rewrites = make_resilient(options);
    take_rewrites(plan.gates, options.gates);
    if (options.resilient) {
        std::vector<std::string> shown;
        for (const auto& one : rewrites) shown.push_back(fmt::format("{} {} -> {}", one.option, one.before, one.after));
        log::write_as_it_is(
            log::Level::info,
            "resilient mode active: " + (shown.empty() ? std::string("nothing to change") : text::join(shown, ", ")));
        if (request.options.hold.on && !options.hold.on) {
            log::warning("--hold-dev-tpu needs --dev-tpu-name: no dev TPU is held");
        }
    }
    plan.root = project_root(context);
    plan.workdir = (options.workdir.empty() ? plan.root : context.cwd / options.workdir).lexically_normal();
    plan.log_dir = (plan.root / options.log_dir).lexically_normal();
    plan.alive = last_alive(plan.log_dir);
    plan.log = log_in_repository(options, request.target, plan.root);
    if (plan.log.empty() && !options.log_file.empty()) {
        return fail(ErrorKind::usage, fmt::format("the running log {} is not in the repository", options.log_file),
                    fmt::format("name one below {}: iterations commit their entries there", plan.root.string()));
    }
    GDNCTL_TRY(check_gate_setup(plan.gates, request.target, context.cwd, plan.log_dir));
    GDNCTL_TRY(warn_of_unchecked(plan));
    GDNCTL_TRY_ASSIGN(plan.prompt, find_prompt(options, request.target, plan, context));
    for (const auto& name : unknown_placeholders(plan.prompt.text)) {
        log::warning("the prompt has an unknown placeholder {}", name);
    }
    std::vector<std::string> presets = request.target.presets;
    presets.insert(presets.end(), options.directive_presets.begin(), options.directive_presets.end());
    GDNCTL_TRY_ASSIGN(plan.directives,
                      session_directives({presets, options.directive_files, options.directives}, plan.root));
    const bool slot =
        options.isolation == IsolationChoice::worktree ||
        (options.isolation == IsolationChoice::automatic && (options.gates.used || options.uses_budget()));
    plan.isolation = slot ? Isolation::worktree : Isolation::inplace;
    GDNCTL_TRY_ASSIGN(plan.stamps, stamps_of(plan));
    warn_of_unused(request.options, plan);
    plan.run = text::to_lower(format_compact_utc(context.clock.wall())) + "-" + random_hex(4);
    plan.loop_id = random_hex(32);
    return plan;
}

std::string config_of(const LoopPlan& plan, const CodexLoopRequest& request) {
    const LoopOptions& options = plan.options;
    const Json config = {{"target", request.target.name},
                         {"agent", options.agent == AgentKind::codex ? "codex" : "command"},
                         {"model", options.model},
                         {"reasoning_effort", options.reasoning_effort},
                         {"prompt", plan.prompt.file.empty() ? plan.prompt.name : plan.prompt.file.string()},
                         {"directives", plan.directives.size()},
                         {"post_checks", options.post_checks},
                         {"gates", options.gates.used},
                         {"stamp_mode", to_text(plan.stamps)},
                         {"resilient", options.resilient},
                         {"max_failures", options.max_failures},
                         {"hold_dev_tpu", options.hold.on}};
    return gdnctl::to_text(config);
}

Status check_resumed(const Record& run, const LoopPlan& plan, const CodexLoopRequest& request) {
    const Json was = Json::parse(run.word("config"), nullptr, false);
    if (!was.is_object()) return {};
    const LoopOptions& options = plan.options;
    const auto missing = [&](std::string_view what) {
        return fail(ErrorKind::usage,
                    fmt::format("run {} was started with {}, but this command omits it; its changes would be accepted "
                                "without validation",
                                run.word("run"), what),
                    "repeat the original command with --resume, or start a new run without it");
    };
    if (json::boolean(was, "gates").value_or(false) && !options.gates.used)
        return missing("--validation-* or --perf-*");
    const auto checks = was.find("post_checks");
    if (checks != was.end() && !checks->empty() && options.post_checks.empty()) return missing("--post-check");
    const auto differs = [&](const char* what, const std::string& now) {
        const auto then = json::maybe_text(was, what);
        if (then && *then != now) log::warning("{}: {} now, {} when the run started", what, now, *then);
    };
    const Json now = Json::parse(config_of(plan, request));
    for (const char* what : {"target", "agent", "model", "prompt", "stamp_mode"})
        differs(what, now[what].get<std::string>());
    if (checks != was.end() && *checks != now["post_checks"])
        log::warning("different post-checks than when the run started");
    const bool in_slot = run.word("isolation") == "worktree";
    const bool asked = options.isolation != IsolationChoice::automatic;
    if (asked && in_slot != (plan.isolation == Isolation::worktree)) {
        log::warning("the run stays {}, as it started", in_slot ? "in a worktree" : "in place");
    }
    return {};
}

Status check_gates_can_judge(const LoopPlan& plan, const CodexLoopRequest& request, Context& context, bool held) {
    GDNCTL_TRY_ASSIGN(const GateModes modes, resolve_modes(plan.gates));
    if (modes.validation == ValidationMode::off) return {};
    // A run that was broken off is never kept from finishing what it has.
    const bool patient = plan.options.resilient || plan.options.resume;
    if (held) return {};
    OwnJobs jobs(request.config, context);
    return check_clusters_answer({plan.gates.validation, plan.options.hold, patient, plan.root, jobs, context.stop});
}

IdeaPolicy idea_policy_of(const LoopOptions& options, bool gates) {
    switch (options.idea_policy) {
        case IdeaChoice::off: return IdeaPolicy::off;
        case IdeaChoice::warn: return IdeaPolicy::warn;
        case IdeaChoice::block: return IdeaPolicy::block;
        case IdeaChoice::automatic: break;
    }
    return gates ? IdeaPolicy::warn : IdeaPolicy::off;
}

TransactionSettings transaction_settings(const LoopPlan& plan, const CodexLoopRequest& request, fs::path slot) {
    TransactionSettings settings;
    settings.run = plan.run;
    settings.isolation = plan.isolation;
    settings.slot = std::move(slot);
    settings.protected_paths = request.target.protected_paths;
    settings.log_paths = {"*.md", "**/*.md", "*.records.jsonl", "**/*.records.jsonl"};
    for (const auto& log : {request.target.log, plan.log}) {
        if (!log.empty()) settings.log_paths.push_back(log);
    }
    settings.alive = plan.alive;
    settings.clean = !plan.options.allow_dirty;
    settings.links = plan.options.worktree_links;
    return settings;
}

Status warn_of_detached(const GitCheckout& repository) {
    GDNCTL_TRY_ASSIGN(const GitHead head, repository.head());
    if (head.branch.empty()) {
        log::warning(
            "HEAD is detached: accepted work will be on no branch; run git switch -c NAME first to put it on one");
    }
    return {};
}

RunEnd refused_at_once(const Error& error) {
    log::write_as_it_is(log::Level::error, message::iteration_raised(1, error.text()));
    if (!error.hint.empty()) log::warning("hint: {}", error.hint);
    return {"iteration-error", 1, static_cast<int>(ExitCode::usage)};
}

CodexLoopReport report_of(const LoopPlan& plan, const RunEnd& end, const RunState& state,
                          std::chrono::nanoseconds wall) {
    CodexLoopReport report;
    report.reason = end.reason;
    report.iteration = end.iteration;
    report.rc = end.rc;
    report.run = plan.run;
    report.isolation = plan.isolation == Isolation::worktree ? "worktree" : "inplace";
    report.log_dir = plan.log_dir.string();
    report.iterations_total = state.total;
    report.iterations_ended = state.ended;
    report.failures = state.failures;
    report.promotions = state.promotions;
    report.outcomes = state.outcomes;
    report.tokens = state.tokens;
    report.agent_ms = state.agent_ms;
    report.tpu_ms = state.tpu_ms;
    report.wall_ms = std::chrono::duration_cast<std::chrono::milliseconds>(wall).count();
    return report;
}

Result<CodexLoopReport> preview_loop(const CodexLoopRequest& request, const LoopPlan& plan, Context& context) {
    GDNCTL_TRY_ASSIGN(GitCheckout repository, GitCheckout::open(plan.workdir, context.process, context.clock));
    GDNCTL_TRY_ASSIGN(const GitHead head, repository.head());
    GDNCTL_TRY_ASSIGN(LoopAgent agent, make_loop_agent(plan.options, plan.loop_id, {}, true, context));
    GDNCTL_TRY_ASSIGN(fs::path slot, slot_folder(context.state_dir, repository.common_dir()));
    const bool in_slot = plan.isolation == Isolation::worktree;
    AgentRequest words;
    words.worktree = in_slot ? slot : plan.workdir;
    words.files.last_message = plan.log_dir / (iteration_prefix(1) + "last-message.txt");
    const LoopOptions& options = plan.options;
    CodexLoopReport report;
    report.reason = "dry-run";
    report.log_dir = plan.log_dir.string();
    report.isolation = in_slot ? "worktree" : "inplace";
    report.iterations_total = options.iterations;
    report.agent_argv = agent.words(words);
    std::vector<std::string> directives = plan.directives;
    if (options.hold.on) {
        const HoldOptions& hold = options.hold;
        directives.push_back(managed_tpu_directive(options.self_command, hold.cluster, hold.name, hold.type));
    }
    const auto gate = gate_directive(plan.gates, request.target, context.cwd, plan.log_dir);
    if (gate) directives.push_back(*gate);
    report.prompt = assemble_prompt(plan.prompt.text, {1, options.iterations, head.sha}, directives);
    auto& lines = report.plan;
    lines.push_back(fmt::format("{} iteration(s) on {} from {}", options.iterations,
                                head.branch.empty() ? "a detached HEAD" : head.branch, head.sha.substr(0, 12)));
    lines.push_back(fmt::format("target {}, prompt {}", request.target.name,
                                plan.prompt.file.empty() ? plan.prompt.name : plan.prompt.file.string()));
    lines.push_back(in_slot ? fmt::format("iterations work in {}", slot.string())
                            : fmt::format("iterations work in place, in {}", plan.workdir.string()));
    if (options.sync.policy != SyncPolicy::off) {
        lines.push_back(
            fmt::format("merge {}/{} ({})", options.sync.remote, options.sync.branch, to_text(options.sync.policy)));
    }
    for (const auto& glob : request.target.protected_paths) lines.push_back("protected: " + glob);
    for (const auto& command : options.post_checks) lines.push_back("post-check: " + command);
    lines.push_back(fmt::format("log directory {}", plan.log_dir.string()));
    return report;
}

}  // namespace gdnctl::loop
