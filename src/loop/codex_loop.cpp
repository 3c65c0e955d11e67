#include "loop/codex_loop.h"

#include <csignal>
#include <filesystem>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "jobs/job_destination.h"
#include "loop/clean.h"
#include "loop/engine/engine.h"
#include "loop/engine/journal.h"
#include "loop/engine/log_dir.h"
#include "loop/engine/loop_agent.h"
#include "loop/engine/messages.h"
#include "loop/engine/prompt.h"
#include "loop/engine/sync_main.h"
#include "loop/engine/tpu_hold.h"
#include "loop/engine/transaction.h"
#include "loop/gates/stages.h"
#include "loop/gates/traces.h"
#include "loop/gates/validation_gate.h"
#include "loop/measure/worktrees.h"
#include "loop/memory/context_pack.h"
#include "loop/memory/ideas.h"
#include "loop/memory/ledger.h"
#include "loop/memory/run_view.h"
#include "loop/memory/running_log.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/machine.h"
#include "platform/signals.h"
#include "platform/terminal.h"
#include "services/job/job.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

struct LoopPlan {
    LoopOptions options;  // as --resilient left them
    GateChoices gates;
    std::filesystem::path root, workdir, subfolder, log_dir;  // subfolder: of the root, where the agent works
    std::optional<std::filesystem::file_time_type> alive;     // an earlier session in log_dir: see last_alive()
    std::string log;                    // the running log, relative to the root; empty: there is none
    StampMode stamps = StampMode::off;  // never automatic
    Document prompt;
    std::vector<std::string> directives;
    Isolation isolation = Isolation::inplace;
    std::string run, loop_id;
};

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
    if (mode == StampMode::automatic) return plan.gates.used ? StampMode::commit : StampMode::off;
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

// With a held TPU, clusters are only a fallback.
Status check_traces(const LoopPlan& plan, const Target& target, Context& context) {
    GDNCTL_TRY_ASSIGN(const GateModes modes, resolve_modes(plan.gates));
    if (modes.validation == ValidationMode::off || plan.options.hold.on) return {};
    return check_trace_places(target, gate_clusters(plan.gates.validation, plan.options.hold, {}, plan.root), context);
}

// Errors: usage, config. Nothing is written.
Result<LoopPlan> make_loop_plan(const CodexLoopRequest& request, Context& context) {
    LoopPlan plan;
    plan.options = request.options;
    LoopOptions& options = plan.options;
    GDNCTL_TRY(check_options(options));
    for (auto& link : options.worktree_links) {
        GDNCTL_TRY_ASSIGN(link, slot_link(link));
    }
    plan.gates = request.gates;
    auto rewrites = make_resilient(options);
    // Command lines of the first version must not start TPU work that they did not ask for.
    if (options.resilient && plan.gates.used) make_resilient(plan.gates, rewrites);
    if (options.resilient) {
        const std::size_t count = rewrites.size();
        log::write_as_it_is(log::Level::info,
                            "resilient mode active: " +
                                (count == 0 ? std::string("nothing to change")
                                            : fmt::format("{} option{} changed", count, count == 1 ? "" : "s")));
        for (const auto& one : rewrites) log::info("{} {} -> {}", one.option, one.before, one.after);
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
    GDNCTL_TRY(check_gate_setup(plan.gates, request.target, cluster_places(context), plan.log_dir));
    GDNCTL_TRY(check_traces(plan, request.target, context));
    GDNCTL_TRY(warn_of_unchecked(plan));
    GDNCTL_TRY_ASSIGN(plan.prompt, find_prompt(options, request.target, plan, context));
    for (const auto& name : unknown_placeholders(plan.prompt.text)) {
        log::warning("the prompt has an unknown placeholder {}", name);
    }
    std::vector<std::string> presets = request.target.presets;
    presets.insert(presets.end(), options.directive_presets.begin(), options.directive_presets.end());
    GDNCTL_TRY_ASSIGN(plan.directives,
                      session_directives({presets, options.directive_files, options.directives}, plan.root));
    const bool slot = options.isolation == IsolationChoice::worktree ||
                      (options.isolation == IsolationChoice::automatic && (plan.gates.used || options.uses_budget()));
    plan.isolation = slot ? Isolation::worktree : Isolation::inplace;
    GDNCTL_TRY_ASSIGN(plan.stamps, stamps_of(plan));
    warn_of_unused(request.options, plan);
    plan.run = text::to_lower(format_compact_utc(context.clock.wall())) + "-" + random_hex(4);
    plan.loop_id = random_hex(32);
    return plan;
}

// JSON text for the `run` record.
std::string config_of(const LoopPlan& plan, const CodexLoopRequest& request) {
    const LoopOptions& options = plan.options;
    const bool codex = options.agent == AgentKind::codex;
    const Json config = {{"target", request.target.name},
                         {"agent", codex ? "codex" : "command"},
                         {"agent_command", redact(options.agent_command)},
                         {"model", codex ? options.model : ""},
                         {"reasoning_effort", codex ? options.reasoning_effort : ""},
                         {"prompt", plan.prompt.file.empty() ? plan.prompt.name : plan.prompt.file.string()},
                         {"directives", plan.directives.size()},
                         {"post_checks", options.post_checks},
                         {"gates", plan.gates.used},
                         {"oracle", to_text(plan.gates.validation.oracle)},
                         {"stamp_mode", to_text(plan.stamps)},
                         {"resilient", options.resilient},
                         {"max_failures", options.max_failures},
                         {"hold_dev_tpu", options.hold.on}};
    return gdnctl::to_text(config);
}

// Whether the run that wrote this record, its first, can be continued by this command. Error usage: its gates or checks
// are missing, so that work would be kept without being judged. Other differences are warnings.
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
    if (json::boolean(was, "gates").value_or(false) && !plan.gates.used) return missing("--validation-* or --perf-*");
    const std::string required(to_text(OracleMode::required));
    if (json::text(was, "oracle") == required && plan.gates.validation.oracle != OracleMode::required) {
        return missing("--validation-oracle required");
    }
    const auto checks = was.find("post_checks");
    if (checks != was.end() && !checks->empty() && options.post_checks.empty()) return missing("--post-check");
    const auto differs = [&](const char* what, const std::string& now) {
        const auto then = json::maybe_text(was, what);
        // Earlier versions noted a model for --agent command, too.
        if (then && *then != now && !now.empty()) log::warning("{}: {} now, {} when the run started", what, now, *then);
    };
    const Json now = Json::parse(config_of(plan, request));
    for (const char* what : {"target", "agent", "model", "prompt", "stamp_mode", "oracle"})
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

// Checks that a cluster that the gates need answers, before an agent is paid for work that could not be judged. Does
// nothing without gates, on this machine, or if a TPU is to be `held`. Errors: those of check_clusters_answer().
Status check_gates_can_judge(const LoopPlan& plan, const CodexLoopRequest& request, Context& context, bool held) {
    GDNCTL_TRY_ASSIGN(const GateModes modes, resolve_modes(plan.gates));
    if (modes.validation == ValidationMode::off) return {};
    // A run that was broken off is never kept from finishing what it has.
    const bool patient = plan.options.resilient || plan.options.resume;
    if (held) return {};
    InProcessJobs jobs(request.config, context);
    return check_clusters_answer({plan.gates.validation, plan.options.hold, patient, plan.root, jobs, context.stop});
}

// `automatic` is warn with gates, else off.
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

// Reports an error with which the first iteration would end the run, and returns that end.
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

// Nothing is written, and no session of a model begins.
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
    lines.push_back(fmt::format("{} iteration{} on {} from {}", options.iterations, options.iterations == 1 ? "" : "s",
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

class Session {
public:
    Session(const CodexLoopRequest& request, LoopPlan plan, Context& context)
        : m_request(request), m_plan(std::move(plan)), m_context(context), m_jobs(request.config, context) {}

    ~Session() { forget_home(); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    Result<CodexLoopReport> run() {
        GDNCTL_TRY_ASSIGN(GitCheckout repository,
                          GitCheckout::open(m_plan.workdir, m_context.process, m_context.clock));
        // A run that cannot start leaves nothing behind. The name of a run that continues is in its journal.
        const bool anew = !m_plan.options.resume;
        if (anew) GDNCTL_TRY(make_agent());
        GDNCTL_TRY(repository.exclude(m_plan.log_dir));  // before it exists: it may be rejected
        GDNCTL_TRY_ASSIGN(Artefacts artefacts, Artefacts::open(m_plan.log_dir));
        const fs::path& common = repository.common_dir();
        GDNCTL_TRY_ASSIGN(const LoopLock lock, LoopLock::acquire(m_plan.log_dir, common, m_context.clock.wall()));
        GDNCTL_TRY(read_state(artefacts.folder() / "state.json"));
        GDNCTL_TRY_ASSIGN(std::optional<ResumePoint> point, resumed_run(artefacts));
        if (point) GDNCTL_TRY(repository.clear_stale_locks(killed_session(m_journal->records(), m_plan.alive)));
        GDNCTL_TRY_ASSIGN(const fs::path slot, slot_folder(m_context.state_dir, common));
        const auto trusted = point ? std::optional(point->trusted) : std::nullopt;
        if (!anew) GDNCTL_TRY(make_agent());
        GDNCTL_TRY_ASSIGN(Transactions git,
                          Transactions::open(m_plan.workdir, transaction_settings(m_plan, m_request, slot), artefacts,
                                             trusted, m_context.process, m_context.clock));
        m_plan.subfolder = m_plan.workdir.lexically_relative(repository.root());
        if (m_plan.subfolder == ".") m_plan.subfolder.clear();
        GDNCTL_TRY_ASSIGN(m_gates, GateStages::create(gate_deps(git, measure_folder(slot))));
        if (anew && artefacts.stop_requested()) {
            log::warning("{}", message::stop_file(artefacts.folder() / "STOP"));
            return not_begun({"stop-file", 0, 0});
        }
        GDNCTL_TRY(check_gates_can_judge(m_plan, m_request, m_context, m_plan.options.hold.on));
        if (anew) {
            GDNCTL_TRY_ASSIGN(const auto refused, begin_anew(artefacts, git));
            if (refused) return not_begun(*refused);
        }
        auto report = work(artefacts, git, point.has_value());
        if (report) leave_no_worktree(git.repository(), slot);
        return report;
    }

private:
    GateDeps gate_deps(Transactions& git, fs::path measure_folder) {
        return GateDeps{m_request.target,
                        m_plan.gates,
                        m_plan.options.hold,
                        nullptr,
                        git.repository(),
                        std::move(measure_folder),
                        transaction_settings(m_plan, m_request, {}).log_paths,
                        m_plan.options.worktree_links,
                        cluster_places(m_context),
                        m_plan.log_dir,
                        m_jobs,
                        m_context.process,
                        m_context.clock,
                        m_context.http,
                        m_context.env,
                        m_plan.run,
                        m_context.stop,
                        [this](const JobOrder& order) { return name_job(order); }};
    }

    Status make_agent() {
        const fs::path home = m_context.state_dir / "loops" / m_plan.run / "codex-home";
        GDNCTL_TRY_ASSIGN(m_agent, make_loop_agent(m_plan.options, m_plan.loop_id, home, false, m_context));
        return {};
    }

    // What was in them is on refs. A run that ended inside an iteration keeps them for --resume.
    void leave_no_worktree(const GitCheckout& repository, const fs::path& slot) const {
        if (view_of(m_journal->records()).open != 0) return;
        std::vector<fs::path> folders = {measure_folder(slot)};
        if (m_plan.isolation == Isolation::worktree) folders.push_back(slot);
        if (const Status gone = remove_worktrees(repository, folders); !gone) {
            log::warning("a worktree was left behind: {}", gone.error().text());
        }
    }

    void forget_home() const {
        std::error_code ignored;
        if (!m_agent.codex_home.empty()) fs::remove_all(m_agent.codex_home.parent_path(), ignored);
    }

    // The run that --resume continues; nullopt: none.
    Result<std::optional<ResumePoint>> resumed_run(const Artefacts& artefacts) {
        if (!m_plan.options.resume) return std::optional<ResumePoint>();
        GDNCTL_TRY_ASSIGN(m_journal, LoopJournal::open(artefacts.folder() / "journal.jsonl"));
        GDNCTL_TRY_ASSIGN(auto point, resume_point(m_journal->records()));
        if (!point) {
            log::info("no run to continue in {}: starting a new one", artefacts.folder().string());
            return point;
        }
        GDNCTL_TRY(check_resumed(m_journal->records().front(), m_plan, m_request));
        log::info("continuing run {}", point->run);
        m_plan.run = point->run;
        m_plan.loop_id = point->loop_id;
        m_plan.isolation = point->isolation;
        for (const auto& left : sweep_loop(point->loop_id, m_context.clock)) {
            log::warning("ended a process of the interrupted run: {} ({})", left.command, left.id.pid);
        }
        GDNCTL_TRY(stop_job_of(m_journal->records(), job_stopper()));
        return point;
    }

    // Files of an earlier run are moved only once it is certain that this one can start: a run whose first iteration
    // would end it at a dirty tree ends here.
    Result<std::optional<RunEnd>> begin_anew(const Artefacts& artefacts, const Transactions& git) {
        GDNCTL_TRY(warn_of_detached(git.repository()));
        const fs::path file = artefacts.folder() / "journal.jsonl";
        GDNCTL_TRY_ASSIGN(const auto broken_off, broken_off_run(file));
        const LoopOptions& options = m_plan.options;
        std::error_code problem;
        if (m_plan.isolation == Isolation::inplace && !options.allow_dirty && fs::exists(file, problem) &&
            options.dirty_policy == DirtyPolicy::fail &&
            (broken_off || options.iteration_error_policy == Policy::fail)) {
            const Status clean = git.check_clean();
            if (!clean && broken_off) return fail(ErrorKind::config, clean.error().message, broken_off->advice());
            if (!clean) return std::optional(refused_at_once(clean.error()));
        }
        GDNCTL_TRY(look_at_earlier_run(file, m_context.clock, job_stopper()));
        const std::string name = earlier_name(file, m_plan.run);
        GDNCTL_TRY_ASSIGN(const int moved, artefacts.set_earlier_aside(name));
        if (moved > 0) {
            log::info("moved {} file{} of an earlier run to {}", moved, moved == 1 ? "" : "s",
                      (artefacts.folder() / "previous").string());
        }
        if (broken_off) log::warning("{}", broken_off->farewell());
        GDNCTL_TRY_ASSIGN(m_journal, LoopJournal::open(file));
        return std::optional<RunEnd>();
    }

    // Nothing was changed.
    CodexLoopReport not_begun(const RunEnd& end) const {
        RunState none;
        none.total = static_cast<int>(m_plan.options.iterations);
        return report_of(m_plan, end, none, {});
    }

    StopJob job_stopper() {
        return [this](const std::string& id, const std::string& cluster) {
            return m_jobs.stop(id, {cluster, {}, {}}, m_context.cwd, true);
        };
    }

    // A job is recorded before it is submitted, so that the next start after a kill can stop it.
    Result<std::string> name_job(const JobOrder& order) {
        std::random_device random;
        const std::string kind = order.kind == JobKind::tests ? "test" : "profile";
        std::string id = make_submission_id(kind, m_plan.run, m_context.clock.wall(), random());
        const std::string work = noted_work(m_plan.log_dir);  // this record ends nothing
        GDNCTL_TRY(note(RecordType::job, {{"kind", kind}, {"cluster", order.site.cluster}, {"job", id}}));
        if (!work.empty()) note_work(m_plan.log_dir, work);
        return id;
    }

    // A record of the iteration that is under way.
    Status note(RecordType type, std::map<std::string, std::string> words) {
        const Record* iteration = last_of(m_journal->records(), RecordType::iteration);
        Record record{type, iteration == nullptr ? 0 : iteration->iteration};
        record.text = std::move(words);
        return m_journal->append(std::move(record), m_context.clock.wall());
    }

    EngineSettings engine_settings() const {
        const LoopOptions& options = m_plan.options;
        EngineSettings settings;
        settings.options = options;
        settings.run = m_plan.run;
        settings.loop_id = m_plan.loop_id;
        settings.isolation = m_plan.isolation;
        settings.config = config_of(m_plan, m_request);
        settings.words = to_text(m_request.words);
        if (const auto modes = resolve_modes(m_plan.gates); m_gates && modes && modes->perf) {
            const std::string& file = m_plan.gates.perf.state_file;
            settings.perf_state =
                file.empty() ? std::string(k_perf_state) : (m_context.cwd / file).lexically_normal().string();
        }
        settings.prompt_template = m_plan.prompt.text;
        settings.directives = m_plan.directives;
        settings.environment = m_agent.environment;
        settings.limits = m_agent.limits;
        settings.budget = budget_of(options);
        settings.longest_wait_s = options.codex_max_wait_s;
        settings.protected_policy = options.protected_policy;
        settings.gates = m_gates != nullptr;
        settings.fail_if_no_win = options.fail_if_no_win;
        settings.keep_background = options.keep_background;
        settings.subfolder = m_plan.subfolder;
        return settings;
    }

    PostChecks post_checks() const {
        const LoopOptions& options = m_plan.options;
        PostChecks checks;
        checks.commands = options.post_checks;
        checks.policy = options.post_check_policy;
        checks.retries = options.post_check_retries;
        checks.retry_sleep_s = options.retry_sleep_seconds;
        checks.timeout_s = options.post_check_timeout_s;
        // The loop's mark is also an agent's; what a check prints is read by the loop and by people.
        checks.environment = {{std::string(k_loop_id_variable), m_plan.loop_id}, {"GDNCTL_AGENT", "0"}};
        checks.subfolder = m_plan.subfolder;
        checks.program = m_context.program;
        checks.private_tree = m_plan.isolation == Isolation::worktree;
        checks.show = shower();
        return checks;
    }

    // What the target wants to see before it spends a device.
    PostChecks target_checks() const {
        PostChecks checks = post_checks();
        checks.name = "validate";
        checks.only_changes = true;
        checks.commands = m_request.target.validate;
        checks.policy = policy_of_gate(m_plan.gates.validation.policy);
        checks.retries = 0;
        return checks;
    }

    std::function<void(std::string_view)> shower() const {
        return [&terminal = m_context.terminal, quiet = m_context.global.quiet](std::string_view line) {
            if (!quiet || !line.empty()) terminal.err(text::visible_line(redact(line)) + "\n");
        };
    }

    std::unique_ptr<LoopHold> hold() const {
        const HoldOptions& options = m_plan.options.hold;
        if (!options.on) return nullptr;
        HoldSettings settings;
        settings.options = options;
        settings.allocator = m_request.allocator;
        settings.log =
            options.allocate_log.empty() ? m_plan.log_dir / "dev_tpu_allocate.log" : m_plan.root / options.allocate_log;
        settings.cwd = m_plan.root;
        settings.environment = {{std::string(k_loop_id_variable), m_plan.loop_id}};
        settings.reacquire_pause =
            std::max(settings.reacquire_pause, std::chrono::seconds(m_plan.gates.validation.retry_sleep_s));
        if (settings.allocator.empty()) return std::make_unique<OwnHold>(std::move(settings), m_context);
        return std::make_unique<TpuHold>(std::move(settings), m_context.process, m_context.clock, m_context.stop);
    }

    // false: a required one is not available.
    bool acquire(std::unique_ptr<LoopHold>& tpu) const {
        if (!tpu) return true;
        const HoldOptions& options = m_plan.options.hold;
        if (const Status held = tpu->acquire(); !held) {
            const bool required = options.policy == HoldPolicy::required;
            log::error("{}{}", held.error().text(), required ? "" : "; continuing without one");
            if (!held.error().hint.empty()) log::warning("hint: {}", held.error().hint);
            tpu.reset();
            const Status clusters = required ? held : check_gates_can_judge(m_plan, m_request, m_context, false);
            if (!clusters && !required) log::error("{}", clusters.error().text());
            return clusters.has_value();
        }
        for (const auto& warning : post_check_warnings(m_plan.options.post_checks, tpu->cluster(), tpu->name())) {
            log::write_as_it_is(log::Level::warning, warning);
        }
        return true;
    }

    Status tidy_up(const Artefacts& artefacts, Transactions& git, int iteration) const {
        if (Status kept = keep_in_ledger(m_plan.log_dir, git.repository(), m_journal->records(), iteration); !kept) {
            // --resume does it again.
            if (kept.error().kind == ErrorKind::local_io) return kept;
            log::warning("not in the ledger: {}", kept.error().text());
        }
        return tidy(artefacts, iteration, m_plan.options.keep_iterations, m_agent.codex_home);
    }

    std::vector<std::unique_ptr<Stage>> stages_before_gates(Transactions& git) const {
        std::vector<std::unique_ptr<Stage>> stages;
        if (m_gates && !m_plan.log.empty()) stages.push_back(make_log_stage(m_plan.log, git.repository()));
        if (const IdeaPolicy ideas = idea_policy_of(m_plan.options, m_gates != nullptr); ideas != IdeaPolicy::off) {
            stages.push_back(make_idea_stage(ideas, git.repository()));
        }
        stages.push_back(make_post_checks(post_checks(), m_context.process, m_context.clock));
        return stages;
    }

    std::vector<std::string> tpu_directive(LoopHold& tpu) const {
        // An allocator is left to the gates.
        if (!tpu.active() && m_request.allocator.empty()) tpu.reacquire("it was lost");
        if (!tpu.active()) return {};
        return {
            managed_tpu_directive(m_plan.options.self_command, tpu.cluster(), tpu.name(), m_plan.options.hold.type)};
    }

    Result<CodexLoopReport> work(const Artefacts& artefacts, Transactions& git, bool resumed) {
        const auto begun = m_context.clock.monotonic();
        std::vector<std::unique_ptr<Stage>> stages = stages_before_gates(git);
        const std::stop_callback said(m_context.stop, [this] {
            log::warning("{}", message::ending(m_doing.load(), received_signal().value_or(SIGINT)));
        });
        std::unique_ptr<LoopHold> tpu = hold();
        if (tpu) m_doing = "no longer waiting for the dev TPU; releasing it";
        const bool can_begin = acquire(tpu);
        if (m_gates) {
            stages.push_back(make_post_checks(target_checks(), m_context.process, m_context.clock));
            m_gates->set_held(tpu.get());
            for (auto& stage : m_gates->stages()) stages.push_back(std::move(stage));
        }
        SyncMain sync(m_plan.options, git.repository(), m_context.stop,
                      [&](auto words) { return note(RecordType::merge_intent, std::move(words)); });
        EngineDeps deps{*m_agent.agent, git, artefacts, *m_journal, m_context.clock};
        deps.stop = m_context.stop;
        deps.doing = &m_doing;
        deps.stages = stages;
        deps.prepare = [&](const std::string& branch, std::span<const Record> records) -> Status {
            GDNCTL_TRY(sync.run(branch, records));
            if (!m_gates || !m_gates->modes().oracle) return {};
            GDNCTL_TRY_ASSIGN(const GitHead head, git.repository().head());
            GDNCTL_TRY(m_gates->oracle_use(head.sha, artefacts));
            return {};
        };
        RunningLog running_log(git.repository(), m_plan.log_dir, m_plan.log, m_plan.stamps);
        if (m_plan.stamps != StampMode::off) {
            deps.log_entry = [&](int iteration, std::span<const Record>) {
                return running_log.entry(m_journal->records(), iteration);
            };
        }
        deps.show = shower();
        deps.command = [&](const AgentRequest& request) { return text::shell_join(m_agent.words(request)); };
        deps.tidy = [&](int iteration) { return tidy_up(artefacts, git, iteration); };
        deps.room = [places = std::vector<fs::path>{m_plan.log_dir, git.repository().common_dir(), git.workdir(),
                                                    m_context.state_dir}] { return check_room(places); };
        if (tpu) {
            deps.held_ms = [&] { return tpu->held().count(); };
            deps.directives.emplace_back([&](std::span<const Record>) { return tpu_directive(*tpu); });
        }
        const auto gate = gate_directive(m_plan.gates, m_request.target, m_context.cwd, m_plan.log_dir);
        if (gate) deps.directives.emplace_back([&](std::span<const Record>) { return std::vector{*gate}; });
        if (m_plan.isolation == Isolation::worktree) {  // in place the prompt is the recipe's, byte for byte
            deps.directives.emplace_back([&](auto records) { return context_directive(m_plan.log_dir, records); });
            deps.directives.emplace_back([&](auto records) { return trace_directive(artefacts, records); });
        }
        log::write_as_it_is(log::Level::info,
                            message::directives_loaded(m_plan.directives.size() + (tpu ? 1 : 0) + (gate ? 1 : 0)));
        m_doing = "the run ends here";
        Engine engine(engine_settings(), std::move(deps));
        const RunEnd end = can_begin ? engine.run(resumed) : without_tpu();
        if (tpu) tpu->release();
        for (const auto& left : sweep_loop(m_plan.loop_id, m_context.clock)) {
            log::warning("ended a process that outlived the run: {} ({})", left.command, left.id.pid);
        }
        forget_home();
        return report_of(m_plan, end, engine.state(), m_context.clock.monotonic() - begun);
    }

    RunEnd without_tpu() const {
        if (!m_context.stop.stop_requested()) return {"dev-tpu-hold", 0, 1};
        return end_by_signal(stopped_error().kind, 0);
    }

    const CodexLoopRequest& m_request;
    LoopPlan m_plan;
    Context& m_context;
    InProcessJobs m_jobs;
    LoopAgent m_agent;
    std::unique_ptr<GateStages> m_gates;
    std::optional<LoopJournal> m_journal;
    std::atomic<const char*> m_doing{"nothing has started yet"};  // what a signal would end
};

}  // namespace

Result<CodexLoopReport> run_codex_loop(const CodexLoopRequest& request, Context& context) {
    GDNCTL_TRY_ASSIGN(LoopPlan plan, make_loop_plan(request, context));
    if (request.dry_run) return preview_loop(request, plan, context);
    return Session(request, std::move(plan), context).run();
}

}  // namespace gdnctl::loop
