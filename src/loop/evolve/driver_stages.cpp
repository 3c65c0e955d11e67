// The evaluations of an attempt, stage by stage.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "loop/evolve/anticheat.h"
#include "loop/evolve/driver.h"
#include "loop/evolve/prompt.h"
#include "loop/evolve/verify.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

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
    if (const auto share = gate.roofline()) metrics["roofline"] = *share;
    if (keep) {
        metrics["fresh"] = json_of(gain_of(fresh.look));
        metrics["fresh_d"] = fresh.d;
    }
    return metrics;
}

}  // namespace

Status Driver::run_stage(std::string_view stage, bool rerun) {
    const int number = state().open.number, eval = state().last_eval + 1;
    const Attempt& one = state().at(number);
    const fs::path log = folder(number) / fmt::format("stage-{}.log", stage);
    Json facts = stage_facts(number, eval, stage);
    Evaluator& evaluator = m_parts.evaluator;
    if (state().prints_nonce) evaluator.require_nonce();
    const bool skipped = (stage == "oracle" && !evaluator.has(LaunchKind::oracle)) ||
                         (stage == "build" && !evaluator.has(LaunchKind::build)) ||
                         (stage == "anticheat" && !evaluator.has(LaunchKind::relations) && !evaluator.checks_profile());
    if (skipped) {
        facts["verdict"] = "skip";
        return add("eval_stage", facts);
    }
    if (stage == "paths") {
        GDNCTL_TRY_ASSIGN(const auto changes, m_parts.store.repository().diff(state().base, one.commit));
        const bool clean = std::all_of(changes.begin(), changes.end(), [&](const GitFileChange& change) {
            return m_parts.store.rules().is_mutable(change.path);
        });
        facts["verdict"] = clean ? "pass" : "fail";
        if (!clean) facts["reason"] = "it differs from the base outside the mutable paths";
        return add("eval_stage", facts);
    }
    GDNCTL_TRY(m_parts.store.remember_setup());  // stages run the agent's code
    GDNCTL_TRY(add("eval_start", facts));
    const auto begun = m_parts.clock.monotonic();
    Launch end;
    if (stage == "target") {
        GDNCTL_TRY_ASSIGN(Json metrics, target_metrics(evaluator, state(), m_settings, log, end));
        if (end.ok) facts["metrics"] = std::move(metrics);
        if (rerun) facts["rerun"] = true;
    } else if (stage == "anticheat") {
        GDNCTL_TRY_ASSIGN(CheatCheck found, check_cheats(evaluator, one.commit, log));
        GDNCTL_TRY_ASSIGN(const auto files, m_parts.store.mutable_text(one.commit));
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
    if (!end.ok && m_parts.room) GDNCTL_TRY(m_parts.room());
    put_launch(facts, end);
    facts["wall_s"] = std::chrono::duration<double>(m_parts.clock.monotonic() - begun).count();
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
        log::warning("hint: gdnctl evolve promote best");
        return {};
    }
    log::info("final verification of attempt {} against the base commit", best.number);
    const auto begun = m_parts.clock.monotonic();
    GDNCTL_TRY(m_parts.store.remember_setup());
    GDNCTL_TRY_ASSIGN(const GateReport report,
                      judge_again(m_parts.store, m_parts.evaluator,
                                  {state(), state().base, best.commit, PairTest::final_one, m_settings.pairs,
                                   m_settings.shape_regression, m_settings.log_dir / "verify"}));
    if (!report.pass && m_parts.room) GDNCTL_TRY(m_parts.room());
    if (report.infra) {
        log::warning("the final verification could not be finished: {}", report.rows.back().reason);
        return add("infra_error", {{"stage", "verify"}, {"what", report.rows.back().reason}});
    }
    Json record = verify_record(state(), best.number, report);
    record["wall_s"] = std::chrono::duration<double>(m_parts.clock.monotonic() - begun).count();
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
