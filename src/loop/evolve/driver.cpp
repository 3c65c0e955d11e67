#include "loop/evolve/driver.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/exit_code.h"
#include "core/log.h"
#include "core/time.h"
#include "core/version.h"
#include "loop/evolve/experiment_log.h"
#include "loop/evolve/prompt.h"
#include "loop/evolve/verify.h"
#include "platform/fs.h"
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

}  // namespace

Status Driver::add(std::string_view type, Json facts) {
    return m_parts.journal.add(type, std::move(facts), m_parts.clock.wall());
}

Status Driver::sleep(std::chrono::milliseconds time) const {
    if (time.count() > 0 && !m_parts.clock.sleep_for(time, m_parts.stop)) return tl::unexpected(stopped_error());
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
    if (const auto back = m_parts.store.restore_setup(); !back) log::warning("{}", back.error().text());
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
    const auto often = starts ? m_starts.wait(m_parts.clock.monotonic()) : std::chrono::milliseconds(0);
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
    if (const Status tidied = m_parts.store.tidy(); !tidied) log::warning("{}", tidied.error().text());
}

// An entry for each session that has had attempts, with those of sessions before it that were killed.
Status Driver::write_experiment(std::string_view reason) {
    if (!state().begun() || m_first >= static_cast<int>(state().attempts.size())) return {};
    const fs::path file = m_settings.log_dir / k_experiment_log;
    GDNCTL_TRY_ASSIGN(const auto before, read_file_if_exists(file));
    const std::string entry =
        experiment_entry(state(), {m_first, std::string(reason), m_settings.goal}, m_parts.clock.wall());
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
        if (m_parts.stop.stop_requested()) return tl::unexpected(stopped_error());
        GDNCTL_TRY(hold_while_paused());
        const Step step = next(state(), interrupted);
        interrupted = false;
        if (auto end = ends_before(step)) return conclude(*end);
        GDNCTL_TRY_ASSIGN(const bool goes_on, wait_for_infrastructure(step));
        if (!goes_on) return finish("infrastructure", code_of(ErrorKind::infrastructure));
        // A pause may be long.
        if (auto end = ends_before(step)) return conclude(*end);
        if (m_parts.room) GDNCTL_TRY(m_parts.room());
        GDNCTL_TRY(take(step));
    }
}

Status Driver::take(const Step& step) {
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

Status Driver::start_run() { return begin_run(m_parts.journal, m_parts.store, m_settings.start, m_parts.clock.wall()); }

Status Driver::measure_noise() {
    const std::string& base = state().base;
    const int eval = state().last_eval + 1;
    GDNCTL_TRY(make_private_directory(folder(0)));
    const fs::path log = folder(0) / "stage-noise.log";
    log::info("measuring the noise: {} pairs of the base commit against itself", m_settings.pairs.cap);
    GDNCTL_TRY(add("eval_start", {{"attempt", 0}, {"eval_id", eval}, {"stage", "noise"}}));
    const auto begun = m_parts.clock.monotonic();
    GDNCTL_TRY_ASSIGN(const Comparison pairs, measure_pairs(m_parts.evaluator, base, base, m_settings.pairs.cap, log));
    const double wall = std::chrono::duration<double>(m_parts.clock.monotonic() - begun).count();
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
    GDNCTL_TRY(m_parts.store.restore_setup());  // the stages ran the agent's code
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
        GDNCTL_TRY(m_parts.store.pin("best", one.commit));
        GDNCTL_TRY(m_parts.store.pin(fmt::format("lineage/{}", one.lineage), one.commit));
    }
    if (!one.commit.empty()) {
        GDNCTL_TRY(m_parts.store.note(one.commit, gdnctl::to_text(facts) + "\n"));
    }
    log::info("attempt {}: {}{}{}", number, to_text(decision.verdict),
              decision.gain ? " " + gain_text(decision.gate.value_or(*decision.gain)) : std::string(),
              decision.reason.empty() ? std::string() : ": " + decision.reason);
    GDNCTL_TRY(add("verdict", facts));
    // Losing INSIGHTS.md does no harm: it is derived from the journal.
    return atomic_replace(m_settings.log_dir / "INSIGHTS.md", insights(state()), 0600);
}

}  // namespace gdnctl::loop::evolve
