#include "loop/evolve/driver.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "core/time.h"
#include "core/version.h"
#include "loop/engine/outcome.h"
#include "loop/evolve/agent_dialogue.h"
#include "loop/evolve/verify.h"
#include "loop/evolve/views.h"
#include "loop/measure/failing_case.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/signals.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds k_look_again{1};
constexpr std::chrono::seconds k_probe{60};
constexpr int k_infra_in_a_row = 3;
constexpr double k_near_roofline = .95;  // what is left is not worth an attempt

bool is_there(const fs::path& path) {
    std::error_code problem;
    return fs::exists(path, problem);
}

Json parents_of(const State& state, const std::vector<int>& numbers) {
    Json out = Json::array();
    for (const int number : numbers) out.push_back({{"attempt", number}, {"commit", state.at(number).commit}});
    return out;
}

int code_of(ErrorKind kind) { return static_cast<int>(exit_code_of(kind)); }

constexpr std::size_t k_failure_tail = 4096, k_most_diff = 20'000;

// The class of a proposal, as docs/evolve.md lists them.
std::string_view class_of(AgentClass kind) {
    switch (kind) {
        case AgentClass::ok: return "ok";
        case AgentClass::hang: return "idle_timeout";
        case AgentClass::wall_limit: return "timeout";
        case AgentClass::token_limit:
        case AgentClass::compaction_limit:
        case AgentClass::request_limit:
        case AgentClass::context_full: return "over_tokens";
        case AgentClass::invalid_prompt: return "refused";
        case AgentClass::incomplete: return "truncated";
        case AgentClass::configuration:
        case AgentClass::authentication:
        case AgentClass::quota:
        case AgentClass::usage_limit:
        case AgentClass::rate_limit:
        case AgentClass::overloaded:
        case AgentClass::server_error:
        case AgentClass::unreachable:
        case AgentClass::stream_cut: return "infra";
        default: return "agent_error";
    }
}

std::string tail_of(const fs::path& file, std::size_t bytes) {
    const auto text = read_file_if_exists(file, std::size_t{64} << 20);
    if (!text || !*text) return {};
    return text::repair_utf8(text::end_within(**text, bytes));
}

Json tokens_of(const std::optional<AgentTokens>& tokens) {
    if (!tokens) return nullptr;
    return {{"in", tokens->input},
            {"cached", tokens->cached_input},
            {"out", tokens->output},
            {"reasoning", tokens->reasoning}};
}

Json snapshot_of(int number, const Candidate& it, const Work& work) {
    return {{"attempt", number},
            {"commit", it.commit},
            {"tree", it.tree},
            {"patch_id", it.patch_id},
            {"code_key", it.code_key},
            {"mutable_key", it.mutable_key},
            {"files", it.files},
            {"added", it.added},
            {"removed", it.removed},
            {"ignored_files", work.ignored},
            {"forbidden_paths", work.forbidden},
            {"refused", work.refused}};
}

Json stage_facts(int attempt, int eval, std::string_view stage) {
    return {{"attempt", attempt}, {"eval_id", eval}, {"stage", stage}};
}

void put_launch(Json& facts, const Launch& launch) {
    facts["verdict"] = launch.ok ? "pass" : launch.infra ? "infra" : "fail";
    if (!launch.reason.empty()) facts["reason"] = launch.reason;
    facts["rc"] = launch.rc;
    facts["device"] = launch.device;
    facts["device_s"] = launch.device_s;
    if (launch.impossible) facts["impossible"] = true;
    if (!launch.oracle.is_null()) facts["oracle"] = launch.oracle;
}

// Three fresh pairs tell the gain of a candidate that was kept; those that kept it are lucky ones.
constexpr int k_fresh_pairs = 3;

Json shapes_json(const Comparison& pairs) {
    Json out = Json::object();
    for (const auto& [name, d] : pairs.shapes) out[name] = json_of(gain_of(judge_pairs(d, PairRule{})));
    return out;
}

Result<Json> target_metrics(Evaluator& evaluator, const State& state, const DriverSettings& settings,
                            const fs::path& log, Launch& end) {
    const Attempt& one = state.at(state.open.number);
    const Attempt& champion = state.at(state.best);
    GDNCTL_TRY_ASSIGN(Comparison gate, compare(evaluator, champion.commit, one.commit, settings.pairs, log));
    Comparison fresh;
    end.device_s = gate.device_s;
    end.device = gate.device;
    const bool faster = gate.decided && gate.look.verdict == PairVerdict::keep;
    const std::string slower = faster ? slower_shape(gate, settings.shape_regression) : std::string();
    const bool keep = faster && slower.empty();
    if (keep) {
        GDNCTL_TRY_ASSIGN(fresh, measure_pairs(evaluator, champion.commit, one.commit, k_fresh_pairs, log));
        end.device_s += fresh.device_s;
    }
    if (!state.device.empty() && !gate.device.empty() && gate.device != state.device) {
        return fail(
            ErrorKind::usage,
            fmt::format("the profiles run on {}, and those of run {} on {}", gate.device, state.run, state.device),
            "continue it there, or measure again here: --resume --accept-device-change");
    }
    Comparison& last = keep ? fresh : gate;
    if (!last.decided) {
        end.reason = (last.champion_failed ? "the champion's profile failed: " : "") + last.failed.reason;
        end.infra = last.failed.infra || last.champion_failed;
        end.rc = last.failed.rc;
        end.impossible = last.failed.impossible && !last.champion_failed;
        return Json();
    }
    end.ok = true;
    Json metrics = {{"champion", one.number == 0 ? 0 : state.best},
                    {"verdict", slower.empty() ? to_text(gate.look.verdict) : to_text(PairVerdict::refuse)},
                    {"gate", json_of(gain_of(gate.look))},
                    {"d", gate.d}};
    if (!gate.shapes.empty()) metrics["shapes"] = shapes_json(gate);
    if (!slower.empty()) metrics["slower_shape"] = slower;
    if (keep && gate.is_slower_by_wall()) metrics["slower_by_wall"] = true;
    if (const auto share = gate.roofline()) metrics["roofline"] = *share;
    if (keep) {
        metrics["fresh"] = json_of(gain_of(fresh.look));
        metrics["fresh_d"] = fresh.d;
    }
    return metrics;
}

}  // namespace

Status Driver::add(std::string_view type, Json facts) {
    return m_deps.journal.add(type, std::move(facts), m_deps.clock.wall());
}

Status Driver::sleep(std::chrono::milliseconds time) const {
    if (time.count() > 0 && !m_deps.clock.sleep_for(time, m_deps.stop)) return tl::unexpected(stopped_error());
    return {};
}

const std::string& Driver::parent_commit() const {
    return state().at(state().at(state().open.number).parents.front()).commit;
}

DriverEnd Driver::end_of(std::string_view reason, int rc) const {
    const int attempts = state().begun() ? static_cast<int>(state().attempts.size()) - 1 : 0;
    return {std::string(reason), attempts, rc};
}

DriverEnd Driver::run(bool resumed) {
    auto end = loop(resumed);
    if (const auto back = m_deps.store.restore_setup(); !back) log::warning("{}", back.error().text());
    if (end) return std::move(*end);
    const Error& error = end.error();
    const bool stopped = error.kind == ErrorKind::interrupted || error.kind == ErrorKind::terminated;
    if (!stopped) {
        log::write(log::Level::error, error.text());
        if (!error.hint.empty()) log::write(log::Level::warning, "hint: " + error.hint);
    }
    const std::string_view reason = error.kind == ErrorKind::interrupted  ? "interrupted"
                                    : error.kind == ErrorKind::terminated ? "terminated"
                                    : error.kind == ErrorKind::local_io   ? "local-io"
                                    : error.kind == ErrorKind::conflict   ? "conflict"
                                                                          : "error";
    const int rc = code_of(error.kind);
    // The record is a courtesy: the disk may be full.
    if (state().begun()) [[maybe_unused]]
        const auto noted = add("stop", {{"reason", reason}, {"rc", rc}, {"logged", state().logged}});
    return end_of(reason, rc);
}

Result<DriverEnd> Driver::finish(std::string_view reason, int rc) {
    GDNCTL_TRY(write_experiment(reason));
    const auto attempts = static_cast<int>(state().attempts.size()) - 1;
    GDNCTL_TRY(add("stop", {{"reason", reason}, {"rc", rc}, {"logged", attempts}}));
    tidy();
    return end_of(reason, rc);
}

int Driver::worth() const {
    if (!state().begun() || state().best == 0) return static_cast<int>(ExitCode::nothing_done);
    return static_cast<int>(failed_verification(state()) ? ExitCode::check_failed : ExitCode::ok);
}

std::optional<DriverEnd> Driver::ends_before(const Step& step) const {
    const int worth = this->worth();
    if (state().noise_measured) {
        const NoiseVerdict noise =
            judge_noise(state().noise_sd, m_settings.pairs.min_gain, m_settings.target_gain, m_settings.pairs.cap);
        if (!noise.fits) {
            log::error(
                "one pair has a standard deviation of {:.2f} %: with {} pairs no gain below {:.2f} % can be kept",
                to_percent(state().noise_sd), m_settings.pairs.cap, noise.detectable_pct);
            log::warning("hint: {}",
                         noise_hint(noise, m_settings.pairs.min_gain, m_settings.target_gain, m_settings.pairs.cap));
            return end_of("noise", 1);
        }
    }
    // One that was imported has no agent; its evaluation is what it costs.
    const bool imported = step.kind == StepKind::run_stage && state().open.stages.empty() &&
                          !state().at(state().open.number).imported.empty();
    if (step.kind != StepKind::begin_attempt && !imported) return std::nullopt;
    if (is_there(m_settings.log_dir / "STOP")) return end_of("stop-file", worth);
    const std::string_view spent = ended_by(m_settings.budget, state().spent);
    if (!spent.empty()) return end_of(spent, worth);
    if (!m_agent_stop.reason.empty()) return end_of(m_agent_stop.reason, m_agent_stop.rc);
    if (state().at(state().best).roofline >= k_near_roofline) return end_of("roofline", worth);
    return std::nullopt;
}

Status Driver::hold_while_paused() {
    if (!is_there(m_settings.log_dir / "PAUSE") || !state().begun()) return {};
    GDNCTL_TRY(add("pause", {{"why", "PAUSE"}}));
    log::info("paused: remove {} or run `gdnctl evolve pause --off` to continue",
              (m_settings.log_dir / "PAUSE").string());
    while (is_there(m_settings.log_dir / "PAUSE") && !is_there(m_settings.log_dir / "STOP"))
        GDNCTL_TRY(sleep(k_look_again));
    return add("resume", {{"why", "PAUSE was removed"}});
}

// A STOP file ends it.
Status Driver::rest(std::chrono::milliseconds time) const {
    while (time.count() > 0 && !is_there(m_settings.log_dir / "STOP")) {
        const auto slice = std::min<std::chrono::milliseconds>(time, k_probe);
        GDNCTL_TRY(sleep(slice));
        time -= slice;
    }
    return {};
}

Result<bool> Driver::wait_for_infrastructure(const Step& step) {
    const int failed = state().infra_in_a_row;
    const bool starts = step.kind == StepKind::begin_attempt;
    const auto often = starts ? m_starts.wait(m_deps.clock.monotonic()) : std::chrono::milliseconds(0);
    if (failed == 0) {
        m_waited = {};
        GDNCTL_TRY(rest(often));
        return true;
    }
    std::chrono::milliseconds pause = failed < k_infra_in_a_row ? std::chrono::seconds(failed) : k_probe;
    pause = std::max({pause, often, std::exchange(m_provider_pause, {})});
    if (m_waited + pause > m_settings.infra_max_wait) return false;
    m_waited += pause;
    if (pause > k_probe) log::info("waiting {} before the next attempt", format_duration(pause));
    GDNCTL_TRY(rest(pause));
    return true;
}

void Driver::tidy() {
    if (state().open.number != 0) return;
    if (const Status tidied = m_deps.store.tidy(); !tidied) log::warning("{}", tidied.error().text());
}

// An entry for each session that has had attempts, with those of sessions before it that were killed.
Status Driver::write_experiment(std::string_view reason) {
    if (!state().begun() || m_first >= static_cast<int>(state().attempts.size())) return {};
    const fs::path file = m_settings.log_dir / k_experiment_log;
    GDNCTL_TRY_ASSIGN(const auto before, read_file_if_exists(file));
    const std::string entry =
        experiment_entry(state(), {m_first, std::string(reason), m_settings.goal}, m_deps.clock.wall());
    return atomic_replace(file, before.value_or("# Experiment Log\n") + entry, 0600);
}

Result<DriverEnd> Driver::loop(bool resumed) {
    bool interrupted = resumed && state().begun();
    m_first = state().logged + 1;
    if (interrupted) {
        const Step step = next(state(), true);
        // A run that has ended and must not continue is left unchanged.
        if (auto end = ends_before(step); end && !state().stopped.empty()) {
            tidy();  // it may have been killed in its last moment
            return std::move(*end);
        }
        Json facts = {{"why", "--resume"}, {"budget_left", left_of(m_settings.budget, state().spent)}};
        if (!m_settings.start.words.empty()) facts["options"] = m_settings.start.words;
        GDNCTL_TRY(add("resume", std::move(facts)));
    }
    const auto conclude = [this](const DriverEnd& end) -> Result<DriverEnd> {
        if (!end.reason.starts_with("max-") && end.reason != "roofline") return finish(end.reason, end.rc);
        GDNCTL_TRY(verify_best());
        return finish(end.reason, worth());
    };
    for (;;) {
        if (m_deps.stop.stop_requested()) return tl::unexpected(stopped_error());
        GDNCTL_TRY(hold_while_paused());
        const Step step = next(state(), interrupted);
        interrupted = false;
        if (auto end = ends_before(step)) return conclude(*end);
        GDNCTL_TRY_ASSIGN(const bool goes_on, wait_for_infrastructure(step));
        if (!goes_on) return finish("infrastructure", code_of(ErrorKind::infrastructure));
        // A pause may be long.
        if (auto end = ends_before(step)) return conclude(*end);
        if (m_deps.room) GDNCTL_TRY(m_deps.room());
        GDNCTL_TRY(run_step(step));
    }
}

Status Driver::run_step(const Step& step) {
    switch (step.kind) {
        case StepKind::start_run: return start_run();
        case StepKind::measure_noise: return measure_noise();
        case StepKind::begin_attempt: return begin_attempt();
        case StepKind::run_agent: return run_agent();
        case StepKind::abandon: return abandon();
        case StepKind::run_stage: return run_stage(step.stage, false);
        case StepKind::measure_again: return run_stage("target", true);
        case StepKind::decide: return settle();
    }
    return {};
}

Status begin_run(EvolveJournal& journal, const Store& store, const RunStart& start, WallTime now) {
    GDNCTL_TRY_ASSIGN(const auto guards, store.guards(start.base));
    GDNCTL_TRY_ASSIGN(const std::string key, store.mutable_key(start.base));
    GDNCTL_TRY(store.pin("base", start.base));
    GDNCTL_TRY(store.pin("best", start.base));
    GDNCTL_TRY_ASSIGN(const Json config, parse_json(start.config, "configuration"));
    GDNCTL_TRY_ASSIGN(const GitHead head, store.repository().head());
    Json facts = {{"run", start.run},   {"version", version()},         {"loop_id", start.loop_id},
                  {"seed", start.seed}, {"base", start.base},           {"branch", head.branch},
                  {"mutable_key", key}, {"evaluator", start.evaluator}, {"protected", guards},
                  {"config", config}};
    if (!start.words.empty()) facts["options"] = start.words;
    return journal.add("run_start", std::move(facts), now);
}

Status Driver::start_run() { return begin_run(m_deps.journal, m_deps.store, m_settings.start, m_deps.clock.wall()); }

// Before it judges attempts. `ok`: it does. Errors: check_failed (it must, and cannot run the base's kernel).
Result<Launch> Driver::ask_oracle_of_base(const std::string& base) {
    Launch answer;
    answer.ok = true;
    if (!m_deps.evaluator.has_oracle()) return answer;
    log::info("judging the base commit with the oracle");
    GDNCTL_TRY_ASSIGN(answer, m_deps.evaluator.launch(LaunchKind::oracle, base, folder(0) / "stage-oracle.log"));
    if (answer.ok || answer.infra) return answer;
    const bool required = m_deps.evaluator.requires_oracle();
    if (required && !oracle_ran(json::text(answer.oracle, "verdict"))) {
        return fail(ErrorKind::check_failed, "the oracle cannot run the base commit's kernel: " + answer.reason);
    }
    log::warning("the base commit is not OK ({}); {}", answer.reason,
                 required ? "attempts must be" : "attempts are judged without the oracle");
    answer.ok = required;
    return answer;
}

Status Driver::measure_noise() {
    const std::string& base = state().base;
    const int eval = state().last_eval + 1;
    GDNCTL_TRY(make_private_directory(folder(0)));
    const fs::path log = folder(0) / "stage-noise.log";
    GDNCTL_TRY(add("eval_start", {{"attempt", 0}, {"eval_id", eval}, {"stage", "noise"}}));
    const auto begun = m_deps.clock.monotonic();
    GDNCTL_TRY_ASSIGN(const Launch asked, ask_oracle_of_base(base));
    if (asked.infra) {
        Json facts = stage_facts(0, eval, "noise");
        put_launch(facts, asked);
        GDNCTL_TRY(add("eval_stage", facts));
        return add("infra_error", {{"stage", "noise"}, {"what", asked.reason}});
    }
    log::info("measuring the noise: {} pairs of the base commit against itself", m_settings.pairs.cap);
    GDNCTL_TRY_ASSIGN(const Comparison pairs, measure_pairs(m_deps.evaluator, base, base, m_settings.pairs.cap, log));
    const double wall = std::chrono::duration<double>(m_deps.clock.monotonic() - begun).count();
    Json facts = {{"attempt", 0},           {"eval_id", eval},
                  {"stage", "noise"},       {"wall_s", wall},
                  {"device", pairs.device}, {"device_s", pairs.device_s},
                  {"log", log.string()},    {"evaluator", state().evaluator}};
    if (!pairs.decided) {
        if (!pairs.failed.infra) {
            return fail(ErrorKind::check_failed,
                        fmt::format("the profile of the base commit fails: {}", pairs.failed.reason),
                        fmt::format("see {}", log.string()));
        }
        facts["verdict"] = "infra";
        facts["reason"] = pairs.failed.reason;
        GDNCTL_TRY(add("eval_stage", facts));
        return add("infra_error", {{"stage", "noise"}, {"what", pairs.failed.reason}});
    }
    const NoiseVerdict noise =
        judge_noise(pairs.look.deviation, m_settings.pairs.min_gain, m_settings.target_gain, m_settings.pairs.cap);
    facts["verdict"] = noise.fits ? "pass" : "fail";
    if (m_deps.evaluator.has_oracle()) facts["oracle_use"] = asked.ok ? "judges" : "off";
    facts["metrics"] = {{"sd", pairs.look.deviation},
                        {"mean", pairs.look.mean},
                        {"pairs", pairs.look.n},
                        {"d", pairs.d},
                        {"detectable_pct", noise.detectable_pct},
                        {"nonce", pairs.nonce},
                        {"pairs_needed", noise.pairs_needed}};
    if (const auto share = pairs.roofline()) facts["metrics"]["roofline"] = *share;
    return add("eval_stage", facts);
}

Status Driver::begin_attempt() {
    if (state().attempts.size() > 1) GDNCTL_TRY(sleep(m_settings.sleep));
    const int number = static_cast<int>(state().attempts.size());
    const auto members = state().members();
    const Pick one = pick(members, number, state().rules);
    Json draws = Json::array();
    for (const Draw& draw : one.draws) draws.push_back({{"name", draw.name}, {"k", draw.k}, {"u", draw.u}});
    log::info("attempt {}: {} of attempt {} (lineage {})", number, to_text(one.op), one.parents.front(), one.lineage);
    return add("attempt_start", {{"attempt", number},
                                 {"operator", to_text(one.op)},
                                 {"lineage", one.lineage},
                                 {"restart", one.restart},
                                 {"parents", parents_of(state(), one.parents)},
                                 {"inspirations", parents_of(state(), one.inspirations)},
                                 {"model", m_settings.model},
                                 {"effort", m_settings.effort},
                                 {"budget_left", left_of(m_settings.budget, state().spent)},
                                 {"draws", draws}});
}

Status Driver::settle() {
    GDNCTL_TRY(m_deps.store.restore_setup());  // the stages ran the agent's code
    const State& now = state();
    const int number = now.open.number;
    const Attempt& one = now.at(number);
    const Decision decision = decide(now);
    Json facts = {{"attempt", number}, {"verdict", to_text(decision.verdict)}};
    if (!decision.reason.empty()) facts["reason"] = decision.reason;
    if (decision.gain) facts["gain"] = json_of(*decision.gain);
    if (decision.gate) facts["gate"] = json_of(*decision.gate);
    if (decision.last) facts["final"] = true;
    if (decision.like != 0) facts["like"] = decision.like;
    // Objects, then refs, then the line that names them.
    if (decision.verdict == Verdict::kept) {
        GDNCTL_TRY(m_deps.store.pin("best", one.commit));
        GDNCTL_TRY(m_deps.store.pin(fmt::format("lineage/{}", one.lineage), one.commit));
    }
    if (!one.commit.empty()) GDNCTL_TRY(m_deps.store.note(one.commit, gdnctl::to_text(facts) + "\n"));
    log::info("attempt {}: {}{}{}", number, to_text(decision.verdict),
              decision.gain ? " " + gain_text(decision.gate.value_or(*decision.gain)) : std::string(),
              decision.reason.empty() ? std::string() : ": " + decision.reason);
    GDNCTL_TRY(add("verdict", facts));
    // Losing INSIGHTS.md does no harm: it is derived from the journal.
    return atomic_replace(m_settings.log_dir / "INSIGHTS.md", insights(state()), 0600);
}

// The agent's part of an attempt: its prompt, its run, what it left, and the records of that.

struct Driver::Answer {
    AgentOutcome outcome;
    std::string kind;
    TracedReply reply;
    Work work;
    std::vector<EditResult> edits;
    bool asked_twice = false;
    std::vector<std::string> put_back;  // names and settings of the user's that it had changed
};

std::vector<std::string> directive_files(const fs::path& log_dir) {
    std::vector<fs::path> files;
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(log_dir / "session_directives", problem)) {
        if (entry.path().extension() == ".md") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::vector<std::string> out;
    for (const auto& file : files) {
        const auto text = read_file_if_exists(file);
        if (text && *text && !text::trim(**text).empty()) out.emplace_back(text::trim(**text));
    }
    return out;
}

Result<std::string> Driver::prompt() {
    const State& now = state();
    const Attempt& one = now.at(now.open.number);
    const GitCheckout& git = m_deps.store.repository();
    PromptInput input;
    input.goal = m_settings.goal;
    input.kernel = m_deps.store.rules().kernel;
    input.guarded = m_deps.store.rules().guarded;
    input.edits = m_settings.edits;
    input.directives = m_settings.directives;
    const auto steering = directive_files(m_settings.log_dir);
    input.directives.insert(input.directives.end(), steering.begin(), steering.end());
    GDNCTL_TRY_ASSIGN(const std::string seen, hash_hex(HashKind::sha256, text::join(steering, "\n\n")));
    if (!steering.empty() && seen != m_directives_seen) {
        GDNCTL_TRY(add("steer", {{"attempt", one.number}, {"directives", steering.size()}, {"sha256", seen}}));
        m_directives_seen = seen;
    }
    const auto diff = [&](int number) -> Result<std::string> {
        GDNCTL_TRY_ASSIGN(std::string text, git.patch(now.base, now.at(number).commit, {}));
        if (text.size() > k_most_diff) text.resize(k_most_diff);
        return text::repair_utf8(text);
    };
    if (now.best != 0) {
        GDNCTL_TRY_ASSIGN(input.best_diff, diff(now.best));
    }
    if (one.parents.size() > 1) {
        GDNCTL_TRY_ASSIGN(input.second_parent, diff(one.parents[1]));
    }
    for (const int number : pick(now.members(), one.number, now.rules).inspirations) {
        GDNCTL_TRY_ASSIGN(std::string text, diff(number));
        input.inspirations.push_back(std::move(text));
    }
    const int failed = one.op == Operator::repair ? one.parents.front() : 0;
    if (failed != 0) {
        const std::string& reason = now.at(failed).reason;
        input.failure =
            tail_of(folder(failed) / fmt::format("stage-{}.log", reason.substr(0, reason.find(':'))), k_failure_tail);
    }
    if (m_settings.edits) {
        GDNCTL_TRY_ASSIGN(input.files, m_deps.store.mutable_text(parent_commit()));
    }
    return attempt_prompt(now, input);
}

Result<AgentOutcome> Driver::ask(const std::string& prompt, const fs::path& worktree, std::string_view suffix) {
    const fs::path place = folder(state().open.number);
    AgentRequest request;
    request.prompt = prompt;
    request.worktree = worktree;
    request.loop_id = m_settings.start.loop_id;
    request.environment = m_settings.environment;
    request.limits = m_settings.limits;
    request.files.events = place / fmt::format("agent{}.jsonl", suffix);
    request.files.stderr_log = place / fmt::format("agent{}-stderr.log", suffix);
    request.files.last_message = place / fmt::format("last-message{}.txt", suffix);
    request.show = m_deps.show;
    request.stop = m_deps.stop;
    GDNCTL_TRY(m_deps.store.remember_setup());
    GDNCTL_TRY_ASSIGN(AgentOutcome outcome, m_deps.agent.run(request));
    std::error_code ignored;
    fs::remove(request.files.last_message, ignored);  // response.txt has it
    if (fs::is_empty(request.files.stderr_log, ignored)) fs::remove(request.files.stderr_log, ignored);
    if (outcome.kind == AgentClass::stopped || m_deps.stop.stop_requested()) return tl::unexpected(stopped_error());
    return outcome;
}

fs::path Driver::names_file() const { return folder(state().open.number) / "names.json"; }

Result<std::vector<std::string>> Driver::put_names_back(const RefGuard& names, bool after_a_kill) {
    GDNCTL_TRY_ASSIGN(AgentHead agent, m_deps.store.leave_branch());
    agent.commits.erase(state().base);  // the user's own commit: who moves a branch there is not known
    GDNCTL_TRY_ASSIGN(auto undone, names.put_back(agent, after_a_kill));
    for (const auto& what : undone) log::warning("undid changes by the agent: {}", what);
    std::error_code ignored;
    fs::remove(names_file(), ignored);
    return undone;
}

Status Driver::abandon() {
    std::error_code problem;
    if (fs::exists(names_file(), problem)) {
        GDNCTL_TRY_ASSIGN(const RefGuard names, RefGuard::read(m_deps.store.repository(), names_file()));
        GDNCTL_TRY(put_names_back(names, true));
    }
    const bool gone = state().at(state().open.number).gone;
    GDNCTL_TRY(
        add("verdict", {{"attempt", state().open.number},
                        {"verdict", to_text(Verdict::abandoned)},
                        {"reason", gone ? "its commit is missing" : "the run ended while the agent was working"}}));
    return {};
}

Result<Driver::Answer> Driver::through_tools(const std::string& prompt) {
    Answer answer;
    GDNCTL_TRY_ASSIGN(const fs::path worktree, m_deps.store.prepare(parent_commit()));
    GDNCTL_TRY_ASSIGN(const RefGuard names, RefGuard::snapshot(m_deps.store.repository()));
    GDNCTL_TRY(names.write(names_file()));
    auto outcome = ask(prompt, worktree, "");
    auto put_back = m_deps.store.restore_setup();
    auto undone = put_names_back(names, false);
    if (!outcome) return tl::unexpected(std::move(outcome).error());
    answer.outcome = std::move(*outcome);
    GDNCTL_TRY_ASSIGN(answer.put_back, std::move(undone));
    GDNCTL_TRY(put_back);
    answer.put_back.insert(answer.put_back.end(), put_back->begin(), put_back->end());
    answer.reply = split_trace(answer.outcome.final_message);
    GDNCTL_TRY_ASSIGN(answer.work, m_deps.store.collect(parent_commit()));
    return answer;
}

Result<Driver::Answer> Driver::through_edits(const std::string& prompt) {
    Answer answer;
    GDNCTL_TRY_ASSIGN(const auto files, m_deps.store.mutable_text(parent_commit()));
    std::string asked = prompt;
    AppliedEdits applied;
    for (const std::string_view suffix : {"", "-retry"}) {
        GDNCTL_TRY(make_private_directory(m_settings.empty_folder));
        auto outcome = ask(asked, m_settings.empty_folder, suffix);
        GDNCTL_TRY_ASSIGN(const auto put_back, m_deps.store.restore_setup());
        answer.put_back.insert(answer.put_back.end(), put_back.begin(), put_back.end());
        GDNCTL_TRY_ASSIGN(answer.outcome, std::move(outcome));
        answer.reply = split_trace(answer.outcome.final_message);
        if (!answer.outcome.ok() || abstains(answer.reply.reply)) return answer;
        const EditReply parsed = parse_edits(answer.reply.reply);
        if (parsed.edits.empty() && parsed.problems.empty()) return answer;
        applied = apply_edits(parsed, files);
        answer.edits = applied.results;
        if (applied.all) break;
        answer.asked_twice = true;
        asked = retry_prompt(prompt, applied.near_misses);
    }
    if (!applied.all) {
        answer.kind = "partial_edit";
        return answer;
    }
    GDNCTL_TRY_ASSIGN(const fs::path worktree, m_deps.store.prepare(parent_commit()));
    for (const auto& [path, content] : applied.files) {
        GDNCTL_TRY_ASSIGN(const fs::path place, join_inside(worktree, path));
        GDNCTL_TRY(atomic_replace(place, content));
    }
    GDNCTL_TRY_ASSIGN(answer.work, m_deps.store.collect(parent_commit()));
    return answer;
}

Status Driver::run_agent() {
    const fs::path place = folder(state().open.number);
    GDNCTL_TRY(make_private_directory(place));
    GDNCTL_TRY_ASSIGN(const std::string text, prompt());
    GDNCTL_TRY(atomic_replace(place / "prompt.md", text, 0600));
    GDNCTL_TRY_ASSIGN(Answer answer, m_settings.edits ? through_edits(text) : through_tools(text));
    // What it wrote onto a full disk is not what it meant.
    if (m_deps.room) GDNCTL_TRY(m_deps.room());
    // Why the program itself failed counts more than what it left.
    if (answer.kind.empty()) answer.kind = class_of(answer.outcome.kind);
    const bool nothing = answer.work.changes.empty() && answer.work.refused.empty() && answer.work.tampered.empty();
    if (answer.kind == "ok" && nothing) {
        answer.kind = abstains(answer.reply.reply)                         ? "abstained"
                      : answer.work.forbidden.empty() && !m_settings.edits ? "empty"
                                                                           : "noop";
    }
    return record_answer(std::move(answer));
}

// What the next attempts can expect of the agent.
void Driver::note_failure(const Answer& answer, bool nothing) {
    constexpr int k_row = 5;
    const AgentOutcome& outcome = answer.outcome;
    // Waiting does not help. The attempt does not count against anything, and the next session tries again.
    if (!outcome.stop_reason.empty()) {
        log::error("{}", outcome.reason);
        m_agent_stop = {outcome.stop_reason, state().open.number, outcome.exit_status};
    }
    if (answer.kind == "infra" && outcome.stop_reason.empty()) {
        std::random_device random;
        const double share = std::uniform_real_distribution<double>(0, 1)(random);
        m_provider_pause = provider_pause(outcome, m_provider_waits++, share, m_deps.clock.wall());
        log::warning("{}: {}", word_of(outcome.kind), outcome.reason);
    } else {
        m_provider_waits = 0;
    }
    const bool failed = answer.kind == "agent_error" && nothing;
    if (failed || answer.kind == "infra") {
        m_starts.failed(m_deps.clock.monotonic() - outcome.elapsed);
    } else {
        m_starts.succeeded();
    }
    const std::string said = failed ? said_of(word_of(outcome.kind), outcome.reason) : std::string();
    m_agent_row = failed && said == m_agent_said ? m_agent_row + 1 : failed ? 1 : 0;
    m_agent_said = said;
    if (m_agent_row < k_row) return;
    log::error("the agent failed in {} attempts in a row, each time in the same way: {}", m_agent_row, outcome.reason);
    m_agent_stop = {"circuit-breaker", state().open.number, static_cast<int>(ExitCode::infrastructure)};
}

Status Driver::record_answer(Answer answer) {
    const int number = state().open.number;
    const Attempt& one = state().at(number);
    const fs::path place = folder(number);
    GDNCTL_TRY(atomic_replace(place / "response.txt", answer.reply.reply, 0600));
    if (answer.reply.trace) GDNCTL_TRY(atomic_replace(place / "trace.json", *answer.reply.trace + "\n", 0600));
    const auto when = parse_iso8601(one.started).value_or(m_deps.clock.wall());
    const std::string message =
        fmt::format("Attempt {}: {}\n\nGdnctl-Run: {}\nGdnctl-Attempt: {}\nGdnctl-Operator: {}\n", number,
                    to_text(one.op), state().run, number, to_text(one.op));
    std::vector<std::string> parents;
    for (const int parent : one.parents) parents.push_back(state().at(parent).commit);
    GDNCTL_TRY_ASSIGN(const auto made, m_deps.store.commit(answer.work, parents, message, when));
    // A merge of two whose result is the first one changes nothing either.
    const bool same = made && made->mutable_key == state().at(one.parents.front()).mutable_key;
    if (same && answer.kind == "ok") answer.kind = "noop";
    if (made && !same) GDNCTL_TRY(m_deps.store.pin(fmt::format("cand/{}", number), made->commit));
    GDNCTL_TRY(m_deps.store.write_patch(parent_commit(), made ? made->commit : parent_commit(), place / "diff.patch"));
    const auto& tokens = answer.outcome.tokens;
    const double cost = tokens && m_settings.price
                            ? cost_of(*m_settings.price, tokens->input, tokens->cached_input, tokens->output)
                            : 0;
    Json proposal = {{"attempt", number},
                     {"class", answer.kind},
                     {"rc", answer.outcome.exit_status},
                     {"wall_s", std::chrono::duration<double>(answer.outcome.elapsed).count()},
                     {"tokens", tokens_of(tokens)},
                     {"cost", cost},
                     {"agent_commits", answer.work.agent_commits},
                     {"technique", answer.reply.technique},
                     {"tampered", !answer.work.tampered.empty()},
                     {"forbidden_paths", answer.work.forbidden}};
    if (!answer.put_back.empty()) proposal["put_back"] = answer.put_back;
    if (!answer.outcome.reason.empty()) proposal["reason"] = answer.outcome.reason;
    GDNCTL_TRY(add("proposal", proposal));
    note_failure(answer, !made);
    if (m_settings.edits) {
        Json edits = Json::array();
        for (const EditResult& edit : answer.edits) {
            edits.push_back({{"file", edit.file}, {"applied", edit.applied}, {"reason", edit.reason}});
        }
        GDNCTL_TRY(add("edit_report", {{"attempt", number}, {"edits", edits}, {"retried", answer.asked_twice}}));
    }
    const bool has_something = (made && !same) || !answer.work.refused.empty();
    if (!has_something) return {};
    const Candidate none;
    const Candidate& it = made && !same ? *made : none;
    return add("snapshot", snapshot_of(number, it, answer.work));
}

// The evaluations of an attempt, stage by stage.

Status Driver::run_stage(std::string_view stage, bool rerun) {
    const int number = state().open.number, eval = state().last_eval + 1;
    const Attempt& one = state().at(number);
    const fs::path log = folder(number) / fmt::format("stage-{}.log", stage);
    Json facts = stage_facts(number, eval, stage);
    Evaluator& evaluator = m_deps.evaluator;
    if (state().prints_nonce) evaluator.require_nonce();
    const bool skipped = (stage == "oracle" && (state().oracle_off || !evaluator.has(LaunchKind::oracle))) ||
                         (stage == "build" && !evaluator.has(LaunchKind::build)) ||
                         (stage == "anticheat" && !evaluator.has(LaunchKind::relations) && !evaluator.checks_profile());
    if (skipped) {
        facts["verdict"] = "skip";
        return add("eval_stage", facts);
    }
    if (stage == "paths") {
        GDNCTL_TRY_ASSIGN(const auto changes, m_deps.store.repository().diff(state().base, one.commit));
        const bool clean = std::all_of(changes.begin(), changes.end(), [&](const GitFileChange& change) {
            return m_deps.store.rules().is_mutable(change.path);
        });
        facts["verdict"] = clean ? "pass" : "fail";
        if (!clean) facts["reason"] = "it differs from the base outside the mutable paths";
        return add("eval_stage", facts);
    }
    GDNCTL_TRY(m_deps.store.remember_setup());  // stages run the agent's code
    GDNCTL_TRY(add("eval_start", facts));
    const auto begun = m_deps.clock.monotonic();
    Launch end;
    if (stage == "target") {
        GDNCTL_TRY_ASSIGN(Json metrics, target_metrics(evaluator, state(), m_settings, log, end));
        if (end.ok) facts["metrics"] = std::move(metrics);
        if (rerun) facts["rerun"] = true;
    } else if (stage == "anticheat") {
        GDNCTL_TRY_ASSIGN(CheatCheck found, check_cheats(evaluator, one.commit, log));
        GDNCTL_TRY_ASSIGN(const auto files, m_deps.store.mutable_text(one.commit));
        facts["checks"] = found.checks;
        facts["hints"] = cheat_hints(files);
        end = std::move(found.end);
    } else {
        const LaunchKind kind = stage == "build"    ? LaunchKind::build
                                : stage == "bench"  ? LaunchKind::profile
                                : stage == "oracle" ? LaunchKind::oracle
                                                    : LaunchKind::test;
        GDNCTL_TRY_ASSIGN(end, evaluator.launch(kind, one.commit, log));
        if (kind == LaunchKind::profile && end.ok) facts["metrics"] = {{"value", end.value}};
    }
    // A failure on a full disk says nothing about the candidate.
    if (!end.ok && m_deps.room) GDNCTL_TRY(m_deps.room());
    put_launch(facts, end);
    facts["wall_s"] = std::chrono::duration<double>(m_deps.clock.monotonic() - begun).count();
    facts["log"] = log.string();
    facts["evaluator"] = state().evaluator;
    GDNCTL_TRY(add("eval_stage", facts));
    if (!end.infra) return {};
    log::warning("attempt {}: {}: {} (not the candidate's fault; tried again)", number, stage, end.reason);
    return add("infra_error", {{"attempt", number}, {"stage", stage}, {"what", end.reason}});
}

// The final verification of the best candidate, from what the run has reserved for it. `evolve promote` uses it.
Status Driver::verify_best() {
    const Budget& budget = m_settings.budget;
    const Attempt& best = state().at(state().best);
    const bool reserved = budget.reserve > 0 && (budget.wall_s || budget.device_s);
    if (!reserved || best.number == 0 || verification_of(state(), best.number)) return {};
    if (used_up(budget, state().spent)) {
        log::warning("no budget is left for the final verification");
        log::warning("hint: `gdnctl evolve promote best`");
        return {};
    }
    log::info("final verification of attempt {} against the base commit", best.number);
    const auto begun = m_deps.clock.monotonic();
    GDNCTL_TRY(m_deps.store.remember_setup());
    GDNCTL_TRY_ASSIGN(const GateReport report,
                      judge_again(m_deps.store, m_deps.evaluator,
                                  {state(), state().base, best.commit, PairTest::final_one, m_settings.pairs,
                                   m_settings.shape_regression, m_settings.log_dir / "verify"}));
    if (!report.pass && m_deps.room) GDNCTL_TRY(m_deps.room());
    if (report.infra) {
        log::warning("the final verification could not be finished: {}", report.rows.back().reason);
        return add("infra_error", {{"stage", "verify"}, {"what", report.rows.back().reason}});
    }
    Json record = verify_record(state(), best.number, report);
    record["wall_s"] = std::chrono::duration<double>(m_deps.clock.monotonic() - begun).count();
    record["device_s"] = report.device_s;
    if (report.pass) {
        log::info("attempt {} passed the final verification: {}", best.number, gain_text(report.gain));
    } else {
        log::warning("attempt {} did not pass the final verification: {}: {}", best.number, report.rows.back().stage,
                     report.rows.back().reason);
    }
    return add("verify", std::move(record));
}

}  // namespace gdnctl::loop::evolve
