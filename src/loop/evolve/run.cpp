#include "loop/evolve/run.h"

#include <random>
#include <set>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "core/time.h"
#include "loop/engine/log_dir.h"
#include "loop/engine/loop_agent.h"
#include "loop/engine/prompt.h"
#include "loop/evolve/driver.h"
#include "loop/evolve/synthetic.h"
#include "loop/evolve/verify.h"
#include "loop/gates/traces.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/machine.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

tl::unexpected<Error> wrong(std::string message, std::string hint = {}) {
    return fail(ErrorKind::usage, std::move(message), std::move(hint));
}

double number_in(const ConfigTable& table, std::string_view key) {
    const auto at = table.find(key);
    if (at == table.end()) return 0;
    if (const auto* whole = std::get_if<std::int64_t>(&at->second.value)) return static_cast<double>(*whole);
    const auto* real = std::get_if<double>(&at->second.value);
    return real != nullptr ? *real : 0;
}

// The price in [codex-loop.prices.MODEL]; a model's name may contain dots.
std::optional<Price> price_of(const Context& context, const std::string& model) {
    const ConfigValue* prices = context.config.find("codex-loop.prices");
    const ConfigTable* table = prices != nullptr ? prices->as_table() : nullptr;
    const auto at = table != nullptr ? table->find(model) : ConfigTable::const_iterator();
    if (table == nullptr || at == table->end() || at->second.as_table() == nullptr) return std::nullopt;
    const ConfigTable& of = *at->second.as_table();
    return Price{number_in(of, "in"), number_in(of, "cached"), number_in(of, "out")};
}

Json job_json(const std::optional<TargetJob>& job) {
    if (!job) return nullptr;
    Json env = Json::array();
    for (const auto& [name, value] : job->env) env.push_back(name + "=" + value);
    Json json = {{"argv", job->argv}, {"env", env}, {"workdir", job->workdir}};
    if (!job->trace.empty()) json["trace"] = {job->trace, job->trace_device};
    return json;
}

Json target_json(const Target& target) {
    Json json = {{"name", target.name},         {"kernel", target.kernel},       {"protected", target.protected_paths},
                 {"validate", target.validate}, {"test", job_json(target.test)}, {"profile", job_json(target.profile)}};
    if (target.metric) {
        json["metric"] = {{"name", target.metric->name},
                          {"from", target.metric->from},
                          {"better", target.metric->lower_is_better ? "lower" : "higher"}};
    }
    if (target.oracle) {
        json["oracle"] = {{"words", oracle_words(*target.oracle)}, {"python", target.oracle->python}};
    }
    if (!target.floor.empty()) json["floor"] = target.floor;
    if (!target.kernel_op.empty()) json["kernel_op"] = target.kernel_op;
    return json;
}

// The newest run by its name, which begins with its time; empty: none. One that was refused has an empty journal and no
// state.
std::string newest_run(const fs::path& root) {
    std::string newest;
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(root, problem)) {
        const std::string name = entry.path().filename().string();
        const std::uintmax_t size = fs::file_size(entry.path() / "journal.jsonl", problem);
        if (problem) continue;
        if (name > newest && (size > 0 || fs::exists(entry.path() / "state.json", problem))) newest = name;
    }
    return newest;
}

bool names_log_dir(const std::string& log_dir) { return log_dir != LoopOptions{}.log_dir; }

Status check_numbers(const EvolveOptions& evolve, const LoopOptions& loop, const GateChoices& gates) {
    const auto at_least_one = [](const char* name, const std::optional<std::int64_t>& value) -> Status {
        if (value && *value < 1) return wrong(fmt::format("{} must be at least 1", name));
        return {};
    };
    GDNCTL_TRY(at_least_one("--max-attempts", evolve.max_attempts));
    GDNCTL_TRY(at_least_one("--max-no-improve", evolve.no_improve));
    GDNCTL_TRY(at_least_one("--max-tokens", loop.max_tokens));
    GDNCTL_TRY(at_least_one("--max-wall", loop.max_wall_s));
    GDNCTL_TRY(at_least_one("--lineages", evolve.lineages));
    GDNCTL_TRY(at_least_one("--stagnation", evolve.stagnation));
    if (evolve.max_usd && *evolve.max_usd <= 0) return wrong("--max-usd must be greater than 0");
    if (evolve.device_s && *evolve.device_s <= 0) return wrong("--max-device-seconds must be greater than 0");
    if (evolve.reserve_pct < 0 || evolve.reserve_pct > 100) return wrong("--reserve-final: expected 0 to 100 percent");
    if (evolve.target_gain_pct <= 0) return wrong("--target-gain-pct must be greater than 0");
    if (evolve.max_shape_regression_pct < 0) return wrong("--max-shape-regression-pct must not be negative");
    const std::int64_t pairs = gates.perf.pairs;
    if (pairs != 3 && pairs != 5 && pairs != 9) return wrong("--perf-pairs: expected 3, 5 or 9 with --mode evolve");
    return {};
}

// Checks the options of an evolve run. Error usage.
Status check_evolve(const EvolveRequest& request) {
    const EvolveOptions& evolve = request.evolve;
    const LoopOptions& loop = request.loop;
    GDNCTL_TRY(check_numbers(evolve, loop, request.gates));
    if (!evolve.max_attempts && !evolve.no_improve && !evolve.max_usd && !evolve.device_s && !loop.max_wall_s &&
        !loop.max_tokens) {
        return wrong("--mode evolve needs a budget",
                     "pass at least one of --max-attempts, --max-wall, --max-tokens, --max-usd, --max-device-seconds, "
                     "--max-no-improve");
    }
    if (!evolve.operator_mix.empty()) GDNCTL_TRY(parse_mix(evolve.operator_mix));
    if (request.dry_run) {
        if (loop.resume) return wrong("--dry-run and --resume cannot be combined: a dry run's repository is temporary");
        return {};
    }
    const Target& target = request.target;
    const auto lacks = [&](const char* what) {
        return fail(ErrorKind::config, fmt::format("target {} has no {}: --mode evolve needs one", target.name, what),
                    fmt::format("add it to [targets.{}] in gdnctl.toml", target.name));
    };
    if (target.kernel.empty()) return lacks("kernel");
    if (!target.test) return lacks("test");
    if (!target.profile) return lacks("profile");
    if (!target.metric) return lacks("metric");
    if (loop.agent == AgentKind::command && loop.agent_command.empty()) {
        return wrong("--agent command requires --agent-command");
    }
    if (loop.agent == AgentKind::codex && evolve.edits) {
        return wrong("--edit-protocol v1 is for models without tools", "add --agent command --agent-command CMD");
    }
    return {};
}

// What is measured, for prompts.
std::string goal_of(const Target& target) {
    if (!target.metric) return {};
    return fmt::format("\nThe goal: a {} {}{}, measured by the target `{}`, with all its tests passing.\n",
                       target.metric->lower_is_better ? "lower" : "higher", target.metric->name,
                       target.metric->unit.empty() ? "" : " (" + target.metric->unit + ")", target.name);
}

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

class EvolveRun {
public:
    EvolveRun(const EvolveRequest& request, Context& context) : m_request(request), m_context(context) {}

    Result<EvolveReport> run() {
        GDNCTL_TRY(check_evolve(m_request));
        const auto& clusters = m_request.gates.validation.clusters;
        const std::string cluster = clusters.empty() ? std::string() : clusters.front();
        if (!m_request.dry_run) GDNCTL_TRY(check_trace_places(m_request.target, {cluster}, m_context));
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
        GDNCTL_TRY(resumed ? resume_run(plan, journal, repository) : begin(plan, repository));
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
        log::info("--dry-run: a demo with invented changes and times in a temporary repository; yours is not used");
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

    Status resume_run(EvolvePlan& plan, EvolveJournal& journal, const GitCheckout& repository) {
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

    // Ends what a killed session left behind: processes of the agent, a job, checkouts that were being measured.
    Status end_what_was_left(const EvolvePlan& plan, const State& state, const GitCheckout& repository) const {
        for (const auto& left : sweep_loop(plan.loop_id, m_context.clock)) {
            log::warning("ended a process of the interrupted run: {} ({})", left.command, left.id.pid);
        }
        GDNCTL_TRY(GitSettings::recover(repository, plan.run, m_alive));
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
        evaluator->on_step = [folder = plan.log_dir](const std::string& step) { note_work(folder, step); };
        DriverDeps deps{store, journal, *evaluator, *m_agent.agent, m_context.clock, m_context.stop};
        deps.show = [&terminal = m_context.terminal, quiet = m_context.global.quiet](std::string_view line) {
            if (!quiet) terminal.err(text::visible_line(redact(line)) + "\n");
        };
        deps.room = [places = std::vector<fs::path>{plan.log_dir, repository.common_dir(), m_context.state_dir}] {
            return check_room(places);
        };
        Driver driver(settings_of(plan, directives), std::move(deps));
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

fs::path resumed_folder(const std::string& log_dir, const fs::path& root) {
    if (names_log_dir(log_dir)) return (root / log_dir).lexically_normal();
    const std::string newest = newest_run(root / k_usual_root);
    return newest.empty() ? fs::path() : (root / k_usual_root / newest).lexically_normal();
}

PathRules path_rules(const Target& target) { return {target.kernel, target.protected_paths}; }

PairRule pair_rule(const GateChoices& gates) {
    PairRule rule;
    rule.min_gain = gates.perf.min_improvement_pct.value_or(0.5) / 100;
    rule.cap = static_cast<int>(gates.perf.pairs);
    return rule;
}

std::string new_run(const Clock& clock) {
    return fmt::format("{}z-{}", text::to_lower(format_compact_utc(clock.wall())), random_hex(4));
}

fs::path worktrees_of(const Context& context, std::string_view run) { return context.state_dir / "worktrees" / run; }

Result<EvolvePlan> make_plan(const EvolveRequest& request, const GitCheckout& repository, const fs::path& cwd,
                             const Context& context) {
    EvolvePlan plan;
    plan.run = new_run(context.clock);
    plan.loop_id = random_hex(32);
    std::random_device random;
    plan.seed = request.evolve.seed.value_or((std::uint64_t{random()} << 32U) | random());
    const fs::path runs = repository.root() / k_usual_root;
    if (request.loop.resume) {
        plan.log_dir = resumed_folder(request.loop.log_dir, repository.root());
        if (plan.log_dir.empty()) {
            return fail(ErrorKind::remote_missing, fmt::format("no evolve run in {}", runs.string()),
                        "start one without --resume, or name its --log-dir");
        }
    } else if (names_log_dir(request.loop.log_dir)) {
        plan.log_dir = (request.dry_run ? context.cwd : repository.root()) / request.loop.log_dir;
    } else {
        plan.log_dir = runs / plan.run;
    }
    plan.log_dir = plan.log_dir.lexically_normal();
    plan.worktrees = request.dry_run ? cwd.parent_path() / "worktrees" : worktrees_of(context, plan.run);
    const EvolveOptions& evolve = request.evolve;
    plan.budget.attempts = evolve.max_attempts;
    plan.budget.no_improve = evolve.no_improve;
    plan.budget.usd = evolve.max_usd;
    plan.budget.device_s = evolve.device_s;
    plan.budget.wall_s = request.loop.max_wall_s;
    plan.budget.tokens = request.loop.max_tokens;
    plan.budget.reserve = evolve.reserve_pct / 100;
    plan.pairs = pair_rule(request.gates);
    plan.price = price_of(context, request.loop.model);
    if (evolve.max_usd && !plan.price && !request.dry_run) {
        return fail(ErrorKind::usage, fmt::format("--max-usd: the price of model {} is not known", request.loop.model),
                    fmt::format("add [codex-loop.prices.\"{}\"] with in, cached and out (USD per million tokens) to "
                                "gdnctl.toml",
                                request.loop.model));
    }
    return plan;
}

Result<std::string> base_commit(const std::string& from, const GitCheckout& repository) {
    if (from.empty()) return repository.head().map([](const GitHead& head) { return head.sha; });
    const std::string run = from == "last" ? newest_run(repository.root() / k_usual_root) : from;
    for (const std::string& name : {run.empty() ? from : ref_of(run, "best"), from}) {
        GDNCTL_TRY_ASSIGN(const auto commit, repository.resolve(name));
        if (commit) return *commit;
    }
    return fail(ErrorKind::usage, fmt::format("--from: {} is neither a run nor a commit", from));
}

Status complete_config(EvolvePlan& plan, const EvolveRequest& request, const Target& target,
                       const GitCheckout& repository) {
    const LoopOptions& loop = request.loop;
    const EvolveOptions& evolve = request.evolve;
    GDNCTL_TRY_ASSIGN(const auto mix, evolve.operator_mix.empty() ? Result<OperatorMix>(k_default_mix)
                                                                  : parse_mix(evolve.operator_mix));
    const bool codex = loop.agent == AgentKind::codex && !request.dry_run;
    const Json config = {{"target", target_json(target)},
                         {"agent", request.dry_run ? "scripted"
                                   : codex         ? "codex"
                                                   : "command"},
                         {"agent_command", loop.agent_command},
                         {"model", codex ? loop.model : ""},
                         {"effort", codex ? loop.reasoning_effort : ""},
                         {"edit_protocol", evolve.edits ? "v1" : "tools"},
                         {"lineages", evolve.lineages},
                         {"stagnation", evolve.stagnation},
                         {"operator_mix", to_text(mix)},
                         {"min_gain_pct", plan.pairs.min_gain * 100},
                         {"pairs", plan.pairs.cap},
                         {"target_gain_pct", evolve.target_gain_pct},
                         {"max_shape_regression_pct", evolve.max_shape_regression_pct},
                         {"clusters", request.gates.validation.clusters}};
    plan.config = gdnctl::to_text(config);
    // What judges: the target's jobs, and the protected files of the base.
    std::string judged = gdnctl::to_text(target_json(target)) + "\n";
    const PathRules rules = path_rules(target);
    GDNCTL_TRY_ASSIGN(const auto files, repository.files(plan.base));
    for (const GitFile& file : files) {
        if (rules.is_protected(file.path)) judged += fmt::format("{} {}\n", file.object, file.path);
    }
    GDNCTL_TRY_ASSIGN(plan.evaluator, hash_hex(HashKind::sha256, judged));
    return {};
}

std::vector<std::string> config_changes(const State& state, const EvolvePlan& plan, std::optional<std::uint64_t> seed) {
    std::vector<std::string> changed;
    const Json was = Json::parse(state.config, nullptr, false), now = Json::parse(plan.config, nullptr, false);
    for (const auto& [key, value] : now.items()) {
        const auto then = was.is_object() ? was.find(key) : was.end();
        // Runs of before this option had its default.
        const bool newer = was.is_object() && then == was.end() && key == "max_shape_regression_pct";
        if (newer ? value != Json(1.0) : !was.is_object() || then == was.end() || *then != value)
            changed.push_back(key);
    }
    if (state.evaluator != plan.evaluator) changed.emplace_back("evaluator");
    if (seed && *seed != state.seed) changed.emplace_back("seed");
    return changed;
}

Result<fs::path> find_run(const std::optional<std::string>& run, const std::optional<std::string>& log_dir,
                          const Context& context) {
    const fs::path root = find_repository_root(context.cwd).value_or(context.cwd);
    std::error_code problem;
    if (log_dir) {
        for (const fs::path& start : {context.cwd, root}) {
            if (fs::is_directory(start / *log_dir, problem)) return (start / *log_dir).lexically_normal();
        }
        return wrong(fmt::format("--log-dir: no such directory: {}", (context.cwd / *log_dir).string()));
    }
    const fs::path runs = root / k_usual_root;
    const std::string name = run && *run != "last" ? *run : newest_run(runs);
    if (name.empty() || name.find('/') != std::string::npos || !fs::exists(runs / name / "journal.jsonl", problem)) {
        return fail(ErrorKind::remote_missing,
                    name.empty() ? fmt::format("no evolve run in {}", runs.string())
                                 : fmt::format("no evolve run {} in {}", name, runs.string()),
                    "start one with `gdnctl codex-loop --mode evolve`, or name its --log-dir");
    }
    return runs / name;
}

Result<EvolveReport> run_evolve(const EvolveRequest& request, Context& context) {
    return EvolveRun(request, context).run();
}

}  // namespace gdnctl::loop::evolve
