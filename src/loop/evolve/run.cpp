#include "loop/evolve/run.h"

#include <algorithm>
#include <random>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "loop/engine/artefacts.h"
#include "loop/engine/earlier_run.h"
#include "loop/engine/lock.h"
#include "loop/engine/loop_agent.h"
#include "loop/engine/room.h"
#include "loop/evolve/driver.h"
#include "loop/evolve/plan.h"
#include "loop/evolve/synthetic.h"
#include "loop/evolve/verify.h"
#include "loop/prompt/presets.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "platform/temp_folder.h"
#include "platform/terminal.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

// Ends what the run has started, and forgets what only the run needed.
class Ending {
public:
    Ending(std::string loop_id, fs::path codex_home, Clock& clock)
        : m_loop_id(std::move(loop_id)), m_codex_home(std::move(codex_home)), m_clock(clock) {}
    ~Ending() {
        for (const auto& left : sweep_loop(m_loop_id, m_clock)) {
            log::warning("ended a process that outlived the run: {} ({})", left.command, left.id.pid);
        }
        std::error_code ignored;
        if (!m_codex_home.empty()) fs::remove_all(m_codex_home.parent_path(), ignored);
    }
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

private:
    std::string m_loop_id;
    fs::path m_codex_home;
    Clock& m_clock;
};

class Session {
public:
    Session(const EvolveRequest& request, Context& context) : m_request(request), m_context(context) {}

    Result<EvolveReport> run() {
        GDNCTL_TRY(check_evolve(m_request));
        if (m_request.dry_run) GDNCTL_TRY(use_synthetic_world());
        GDNCTL_TRY_ASSIGN(GitCheckout repository, GitCheckout::open(m_cwd, m_context.process, m_context.clock));
        GDNCTL_TRY_ASSIGN(EvolvePlan plan, make_plan(m_request, repository, m_cwd, m_context));
        // It may be refused, so that it comes before the agent and everything else.
        if (!m_request.dry_run) GDNCTL_TRY(make_agent(plan));
        const fs::path usual = repository.root() / k_usual_root;
        GDNCTL_TRY(repository.exclude(is_inside(usual, plan.log_dir) ? usual : plan.log_dir));
        GDNCTL_TRY(make_private_directory(plan.log_dir));
        m_alive = last_alive(plan.log_dir);  // before this session writes there
        GDNCTL_TRY_ASSIGN(const LoopLock lock,
                          LoopLock::acquire(plan.log_dir, repository.common_dir(), m_context.clock.wall()));
        GDNCTL_TRY_ASSIGN(EvolveJournal journal, EvolveJournal::open(plan.log_dir));
        const bool resumed = journal.state().begun();
        GDNCTL_TRY(resumed ? take_up(plan, journal, repository) : begin(plan, repository));
        if (!journal.cut_off().empty()) {
            GDNCTL_TRY(journal.add("repair",
                                   {{"what", "a torn last line was dropped"}, {"bytes", journal.cut_off().size()}},
                                   m_context.clock.wall()));
        }
        return drive(plan, journal, repository, resumed);
    }

private:
    // Does not change the user's repository: everything is in a temporary folder.
    Status use_synthetic_world() {
        const auto base = m_context.env.get("TMPDIR").value_or("");
        GDNCTL_TRY_ASSIGN(m_dry, TempFolder::make(base.empty() ? "/tmp" : base, "gdnctl-evolve"));
        m_cwd = m_dry.path() / "repository";
        GDNCTL_TRY(make_private_directory(m_cwd));
        GDNCTL_TRY(make_synthetic_repository(m_cwd, m_context.process));
        m_target = synthetic_target();
        return {};
    }

    Status make_agent(const EvolvePlan& plan) {
        const fs::path home = m_context.state_dir / "loops" / plan.run / "codex-home";
        GDNCTL_TRY_ASSIGN(m_agent, make_loop_agent(m_request.loop, plan.loop_id, home, false, m_context));
        return {};
    }

    Status begin(EvolvePlan& plan, const GitCheckout& repository) {
        if (m_request.loop.resume) log::info("no run to continue in {}: starting a new one", plan.log_dir.string());
        GDNCTL_TRY_ASSIGN(plan.base, base_commit(m_request.evolve.from, repository));
        return complete_config(plan, m_request, m_target, repository);
    }

    Status take_up(EvolvePlan& plan, EvolveJournal& journal, const GitCheckout& repository) {
        const State& state = journal.state();
        if (!m_request.loop.resume) {
            return fail(ErrorKind::usage, fmt::format("{} has run {}", plan.log_dir.string(), state.run),
                        "continue it with --resume, or name another --log-dir");
        }
        plan.run = state.run;
        plan.base = state.base;
        plan.seed = state.seed;
        plan.loop_id = state.loop_id;
        plan.worktrees = worktrees_of(m_context, plan.run);
        GDNCTL_TRY_ASSIGN(const auto base, repository.resolve(state.base));
        if (!base) {
            return fail(ErrorKind::remote_missing,
                        fmt::format("the base commit {} of run {} is missing", state.base, state.run),
                        fmt::format("fetch it from the run's repository: {}", k_fetch));
        }
        GDNCTL_TRY(complete_config(plan, m_request, m_target, repository));
        const auto changed = config_changes(state, plan, m_request.evolve.seed);
        // An import knows nothing of the options that its run is to have.
        const bool imported = state.stopped == "imported";
        if (!changed.empty() && !imported && !m_request.evolve.accept_config_change) {
            return fail(ErrorKind::usage,
                        fmt::format("run {} was started with a different {}", state.run, text::join(changed, ", ")),
                        "use the original options, or accept the change with --accept-config-change");
        }
        GDNCTL_TRY(check_device(state));
        GDNCTL_TRY(end_what_was_left(plan, state, repository));
        GDNCTL_TRY(leave_out_missing(journal, repository));
        if (!changed.empty()) GDNCTL_TRY(record_change(journal, plan));
        if (m_request.evolve.accept_device_change && state.noise_measured) {
            GDNCTL_TRY(journal.add("config_change", {{"device", {{"old", state.device}}}}, m_context.clock.wall()));
        }
        log::info("continuing run {}", state.run);
        return {};
    }

    // On a cluster the device is known once a job has run there.
    static bool elsewhere(const State& state) {
        return state.device.starts_with(k_local_device) && state.device != local_device();
    }

    Status check_device(const State& state) const {
        if (m_request.evolve.accept_device_change || !elsewhere(state)) return {};
        return fail(ErrorKind::usage, fmt::format("run {} was measured on another device: {}", state.run, state.device),
                    fmt::format("continue it there, or measure again on {}: --accept-device-change", local_device()));
    }

    // Of a session that was killed: processes of the agent, a job, checkouts that were being measured.
    Status end_what_was_left(const EvolvePlan& plan, const State& state, const GitCheckout& repository) const {
        for (const auto& left : sweep_loop(plan.loop_id, m_context.clock)) {
            log::warning("ended a process of the interrupted run: {} ({})", left.command, left.id.pid);
        }
        GDNCTL_TRY(GitSetup::recover(repository, plan.run, m_alive));
        GDNCTL_TRY(stop_left_job(plan.worktrees, m_request.config, m_context));
        // What could have left locks since the open attempt began has ended; none of it worked in the user's checkout.
        const auto since = parse_iso8601(state.open.number > 0 ? state.at(state.open.number).started : state.last_time);
        const bool killed = since && state.stopped.empty();
        std::optional<GitForcedEnd> forced;
        if (killed && m_alive) forced = GitForcedEnd{fs::file_time_type::clock::from_sys(*since), *m_alive};
        GDNCTL_TRY(repository.clear_stale_locks(forced));
        std::error_code problem;
        const fs::path root = fs::weakly_canonical(plan.worktrees, problem);  // as git keeps it
        std::set<fs::path> left;
        const auto take = [&](const fs::path& folder) {
            const bool stays = folder.filename() == "agent" || folder.filename() == "empty";
            if (folder.parent_path() == root && !stays) left.insert(folder);
            return folder.parent_path() == root && !stays;
        };
        for (const auto& entry : fs::directory_iterator(root, problem)) {
            if (entry.is_directory(problem)) take(entry.path());
        }
        // A worktree whose folder is missing is still on git's list; a killed git leaves it locked.
        for (const auto& entry : fs::directory_iterator(repository.common_dir() / "worktrees", problem)) {
            const auto text = read_file_if_exists(entry.path() / "gitdir");
            if (!text || !*text) continue;
            if (take(fs::path(std::string(text::trim(**text))).parent_path()))
                fs::remove(entry.path() / "locked", problem);
        }
        for (const fs::path& folder : left) GDNCTL_TRY(repository.remove_worktree(folder));
        return {};
    }

    // Nothing builds on candidates without a commit, as in a new clone, until it is back. Those that lost their ref get
    // it; the others may have lost ref and commit to `evolve gc`.
    Status leave_out_missing(EvolveJournal& journal, const GitCheckout& repository) const {
        const State& state = journal.state();
        GDNCTL_TRY_ASSIGN(const StoreCheck found, check_store(repository, state));
        std::vector<GitRefUpdate> refs;
        for (const int number : found.unpinned) {
            if (keeps_its_ref(state, state.at(number)))
                refs.push_back({ref_of_attempt(state, number), state.at(number).commit});
        }
        std::vector<int> lost = found.gone;
        std::erase_if(lost, [&state](int number) { return !keeps_its_ref(state, state.at(number)); });
        std::vector<int> before;
        for (const Attempt& one : state.attempts) {
            if (one.gone) before.push_back(one.number);
        }
        constexpr std::size_t k_shown = 10;
        for (std::size_t i = 0; i < lost.size() && i < k_shown; ++i) {
            log::warning("attempt {}: commit {} is missing: the run continues without it", lost[i],
                         state.at(lost[i]).commit);
        }
        if (lost.size() > k_shown) log::warning("and {} more: see `gdnctl evolve fsck`", lost.size() - k_shown);
        if (!lost.empty()) log::warning("hint: if another repository has them: {}", k_fetch);
        if (found.gone != before) {
            const int best = state.best;
            GDNCTL_TRY(journal.add("repair", {{"what", "candidates whose commit is missing"}, {"missing", found.gone}},
                                   m_context.clock.wall()));
            if (state.best != best) {
                refs.push_back({ref_of(state.run, "best"), state.at(state.best).commit});
                log::warning("the best candidate is now {}",
                             state.best == 0 ? std::string("the base commit") : fmt::format("attempt {}", state.best));
            }
        }
        return refs.empty() ? Status{} : repository.update_refs(refs);
    }

    Status record_change(EvolveJournal& journal, const EvolvePlan& plan) const {
        GDNCTL_TRY_ASSIGN(const Json was, parse_json(journal.state().config, "configuration"));
        GDNCTL_TRY_ASSIGN(const Json now, parse_json(plan.config, "configuration"));
        Json facts = {{"old", was}, {"config", now}, {"evaluator", plan.evaluator}};
        if (!m_request.words.empty()) facts["options"] = m_request.words;
        return journal.add("config_change", std::move(facts), m_context.clock.wall());
    }

    DriverSettings settings_of(const EvolvePlan& plan, const std::vector<std::string>& directives) const {
        DriverSettings settings;
        settings.start.run = plan.run;
        settings.start.loop_id = plan.loop_id;
        settings.start.seed = plan.seed;
        settings.start.base = plan.base;
        settings.start.config = plan.config;
        settings.start.evaluator = plan.evaluator;
        settings.start.words = m_request.words;
        settings.budget = plan.budget;
        settings.pairs = plan.pairs;
        settings.target_gain = m_request.evolve.target_gain_pct / 100;
        settings.shape_regression = m_request.evolve.max_shape_regression_pct / 100;
        settings.edits = m_request.evolve.edits;
        settings.goal = goal_of(m_target);
        settings.model = m_request.dry_run ? "scripted" : m_request.loop.model;
        settings.effort = m_request.dry_run ? "" : m_request.loop.reasoning_effort;
        settings.price = plan.price;
        settings.directives = directives;
        settings.environment = m_agent.environment;
        settings.limits = m_agent.limits;
        settings.infra_max_wait = std::chrono::seconds(m_request.evolve.infra_max_wait_s);
        settings.sleep = std::chrono::seconds(m_request.dry_run ? 0 : m_request.loop.sleep_seconds);
        settings.empty_folder = plan.worktrees / "empty";
        settings.log_dir = plan.log_dir;
        return settings;
    }

    Result<EvolveReport> drive(const EvolvePlan& plan, EvolveJournal& journal, const GitCheckout& repository,
                               bool resumed) {
        std::vector<std::string> presets = m_target.presets;
        const LoopOptions& loop = m_request.loop;
        presets.insert(presets.end(), loop.directive_presets.begin(), loop.directive_presets.end());
        GDNCTL_TRY_ASSIGN(const auto directives,
                          session_directives({presets, loop.directive_files, loop.directives}, repository.root()));
        Store store(repository, plan.run, path_rules(m_target), plan.worktrees, m_context.process, m_context.clock);
        const Ending ending(plan.loop_id, m_agent.codex_home, m_context.clock);
        std::unique_ptr<Evaluator> evaluator;
        if (m_request.dry_run) {
            evaluator = std::make_unique<SyntheticScorer>(repository, plan.seed);
            m_agent.agent = std::make_unique<ScriptedAgent>(plan.seed);
        } else {
            evaluator = std::make_unique<JobEvaluator>(
                store, m_target, JobSettings{m_request.gates.validation, m_request.config, plan.run, plan.worktrees},
                m_context);
        }
        DriverParts parts{store, journal, *evaluator, *m_agent.agent, m_context.clock, m_context.stop};
        parts.show = [&terminal = m_context.terminal, quiet = m_context.global.quiet](std::string_view line) {
            if (!quiet) terminal.err(text::visible_line(redact(line)) + "\n");
        };
        parts.room = [places = std::vector<fs::path>{plan.log_dir, repository.common_dir(), m_context.state_dir}] {
            return check_room(places);
        };
        Driver driver(settings_of(plan, directives), std::move(parts));
        DriverEnd end = driver.run(resumed);
        EvolveReport report;
        report.reason = std::move(end.reason);
        report.attempt = end.attempt;
        report.rc = end.rc;
        report.run = plan.run;
        report.log_dir = plan.log_dir;
        report.state = journal.state();
        return report;
    }

    const EvolveRequest& m_request;
    Context& m_context;
    Target m_target = m_request.target;
    fs::path m_cwd = m_context.cwd;
    std::optional<fs::file_time_type> m_alive;  // of an earlier session of this run
    TempFolder m_dry;
    LoopAgent m_agent;
};

}  // namespace

Result<EvolveReport> run_evolve(const EvolveRequest& request, Context& context) {
    return Session(request, context).run();
}

}  // namespace gdnctl::loop::evolve
