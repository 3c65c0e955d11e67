#include "loop/report/wording.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"
#include "core/time.h"
#include "runlog/records/record.h"

namespace gdnctl::loop {

std::string_view word_of(LoopStatus status) {
    switch (status) {
        case LoopStatus::running: return "running";
        case LoopStatus::stopping: return "stopping";
        case LoopStatus::ended: return "ended";
        case LoopStatus::interrupted: break;
    }
    return "interrupted";
}

LoopStatus status_of(const LoadedRun& run) {
    if (run.holder) return run.stop_asked ? LoopStatus::stopping : LoopStatus::running;
    return run.view.stop_rc ? LoopStatus::ended : LoopStatus::interrupted;
}

std::string standing(const LoadedRun& run) {
    constexpr std::size_t k_to_the_minute = 16;
    const auto& view = run.view;
    switch (status_of(run)) {
        case LoopStatus::running:
        case LoopStatus::stopping:
            return fmt::format("running, process {}{}{}", run.holder->pid,
                               run.holder->since.empty()
                                   ? ""
                                   : " since " + shown(local_time_of(run.holder->since).substr(0, k_to_the_minute)),
                               run.stop_asked ? "; STOP was requested" : "");
        case LoopStatus::ended:
            return fmt::format("ended: {} (exit code {}){}", or_dash(shown(view.stop_reason, 80)), *view.stop_rc,
                               view.open > 0 ? fmt::format("; --resume finishes iteration {}", view.open) : "");
        case LoopStatus::interrupted: break;
    }
    if (view.open > 0) return fmt::format("interrupted in iteration {}; --resume continues it", view.open);
    return "interrupted between two iterations; --resume continues";
}

std::string duration_text(std::int64_t ms) { return format_duration(std::chrono::milliseconds(ms)); }

std::string cost_text(const Cost& cost) {
    std::vector<std::string> parts;
    if (cost.agent_ms > 0) parts.push_back("agent " + duration_text(cost.agent_ms));
    if (cost.tpu_ms > 0) parts.push_back("device " + duration_text(cost.tpu_ms));
    if (cost.tokens) parts.push_back(grouped(*cost.tokens) + " tokens");
    return duration_text(cost.wall_ms) + (parts.empty() ? "" : "; ") + text::join(parts, ", ");
}

std::string short_commit(std::string_view sha) { return shown(sha.substr(0, 12)); }

std::string or_dash(std::string text) { return text.empty() ? "-" : std::move(text); }

namespace {

using loop::IterationView;
using loop::shown;

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(redact(text)); }

std::string ref_of(const Explained& e, std::string_view leaf) {
    return fmt::format("refs/gdnctl/{}/iter-{:03}/{}", shown(e.run, 60), e.iteration.number, leaf);
}

Json gate_json(const loop::GateView& gate) {
    return {{"id", redact(gate.id)},
            {"result", redact(gate.result)},
            {"value", json::or_null(gate.value)},
            {"relation", text_or_null(gate.relation)},
            {"limit", json::or_null(gate.limit)},
            {"words", text_or_null(gate.words)}};
}

Json gates_of(const std::vector<loop::GateView>& gates) {
    Json list = Json::array();
    for (const auto& gate : gates) list.push_back(gate_json(gate));
    return list;
}

Json stages_json(const IterationView& i) {
    Json list = Json::array();
    for (const auto& stage : i.stages) {
        Json facts = Json::object();
        for (const auto& [name, value] : stage.facts) facts[redact(name)] = redact(value);
        list.push_back({{"name", redact(stage.name)},
                        {"verdict", redact(stage.verdict)},
                        {"outcome", text_or_null(stage.outcome)},
                        {"reason", text_or_null(stage.reason)},
                        {"sign", text_or_null(stage.sign)},
                        {"wall_ms", stage.wall_ms},
                        {"tpu_ms", stage.tpu_ms},
                        {"gates", gates_of(stage.gates)},
                        {"facts", std::move(facts)}});
        if (stage.oracle.is_object()) {
            list.back()["oracle"] = Json::parse(redact(gdnctl::to_text(stage.oracle)), nullptr, false);
        }
    }
    return list;
}

Json attempts_json(const IterationView& i) {
    Json list = Json::array();
    for (const auto& attempt : i.attempts) {
        list.push_back({{"attempt", attempt.number},
                        {"ended", attempt.ended},
                        {"class", text_or_null(attempt.class_word)},
                        {"exit_code", attempt.ended ? Json(attempt.rc) : Json()},
                        {"next", text_or_null(attempt.next)},
                        {"reason", text_or_null(attempt.reason)},
                        {"wall_ms", attempt.wall_ms},
                        {"tokens", json::or_null(attempt.tokens)}});
    }
    return list;
}

Json measured_json(const Explained& e) {
    if (e.measured == nullptr) return {};
    const auto& m = *e.measured;
    Json pairs;
    if (m.pairs) {
        pairs = {{"n", m.pairs->n},
                 {"gain_pct", m.pairs->gain_pct},
                 {"low_pct", m.pairs->low_pct},
                 {"high_pct", m.pairs->high_pct},
                 {"deviation_pct", m.pairs->deviation_pct},
                 {"verdict", m.pairs->verdict}};
    }
    return {{"metric", m.metric},
            {"value", json::or_null(m.value)},
            {"points", m.points},
            {"source", text_or_null(m.source)},
            {"delta_vs_champion_pct", json::or_null(m.delta_pct)},
            {"pairs", std::move(pairs)},
            {"gain", m.gain ? runlog::gain_json(*m.gain) : Json()},
            {"noise_pct", json::or_null(e.all_measured->noise_pct())},
            {"decision", text_or_null(m.decision)},
            {"suspect", m.suspect},
            {"run_url", text_or_null(m.run_url)},
            {"gates", gates_of(m.gates)}};
}

}  // namespace

std::string_view result_word(const IterationView& i) {
    if (!i.decided && !i.ended) return "under way";
    if (i.outcome == "accepted" || i.kept()) return i.promoted ? "promoted" : "accepted";
    const std::string_view result = runlog::outcome_words(i.outcome).result;
    return result.empty() ? "failed" : result;
}

std::string verdict_text(const IterationView& i) {
    std::string more;
    const auto add = [&more](std::string_view words) {
        if (!words.empty()) more += fmt::format("{}{}", more.empty() ? "" : "; ", words);
    };
    if (i.decided || i.ended) add(runlog::outcome_words(i.outcome).cause);
    if (i.kept() && i.settled == "blocked") add("it could not land");
    if (i.counted) add("counted as a failure");
    const std::string result = shown(result_word(i), 40);
    return more.empty() ? result : fmt::format("{} ({})", result, shown(more));
}

std::string why_text(const IterationView& i) {
    if (!i.reason.empty()) return shown(runlog::reason_words(i.reason));
    if (!i.decided && !i.ended) return {};
    if (i.outcome == "accepted" || i.kept()) {
        const auto passed =
            std::count_if(i.stages.begin(), i.stages.end(), [](const auto& s) { return s.verdict == "pass"; });
        if (passed == 0) return "no stage could reject it";
        return fmt::format("it passed {} stage{}", passed, passed == 1 ? "" : "s");
    }
    return shown(i.sign);
}

std::string results_text(const std::map<std::string, int>& outcomes, std::int64_t promotions) {
    std::map<std::string_view, std::int64_t> counts;
    for (const auto& [outcome, count] : outcomes) counts[runlog::outcome_words(outcome).result] += count;
    const std::int64_t promoted = std::min<std::int64_t>(promotions, counts["accepted"]);
    counts["accepted"] -= promoted;
    std::string text = promoted > 0 ? fmt::format("{} promoted", promoted) : "";
    for (const auto& [result, count] : counts) {
        if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, or_dash(shown(result, 30)));
    }
    return text;
}

std::string kept_at_text(const Explained& e) {
    const IterationView& i = e.iteration;
    // Attempts that were aborted or repeated: whatever they left.
    if (i.head.empty() && !i.attempts.empty()) return ref_of(e, "attempt-*");
    if (i.head.empty() || i.head == i.base) return {};
    if (i.kept() && i.settled != "blocked" && !i.settled.empty()) return or_dash(shown(i.branch));
    return ref_of(e, "head");
}

std::string judge_again_text(const Explained& e) {
    const IterationView& i = e.iteration;
    const bool trouble = i.outcome == "infra" || i.outcome == "environment";
    if (!trouble || i.verdict != "park" || i.head.empty() || i.head == i.base) return {};
    return fmt::format("git cherry-pick {}..{}", short_commit(i.base), short_commit(i.head));
}

std::string gate_text(const loop::GateView& gate) {
    if (!gate.value || !gate.limit) return shown(gate.words);
    const std::string numbers = fmt::format("{} {} {}", number_for_people(*gate.value), shown(gate.relation, 4),
                                            number_for_people(*gate.limit));
    return gate.words.empty() ? numbers : numbers + ", " + shown(gate.words);
}

std::string value_text(const loop::MeasuredView& measured) {
    if (!measured.value) return {};
    runlog::Gain noise = measured.gain.value_or(runlog::Gain{});
    noise.unit = measured.unit;
    return runlog::value_text(noise, *measured.value);
}

std::string gain_text(const loop::MeasuredView* measured) {
    if (measured == nullptr || !measured->gain) return {};
    std::string text = runlog::gain_text(*measured->gain);
    if (text.empty() || measured->gain->busy.empty()) return text;
    text += "; on a busy machine";
    return measured->gain->pairs == 0 && !measured->became_champion() ? text + ", not promoted" : text;
}

Json explained_json(const Explained& e) {
    const IterationView& i = e.iteration;
    Json files = Json::array();
    for (const auto& file : e.files) files.push_back(redact(file));
    return {{"iteration", i.number},
            {"title", text_or_null(i.title)},
            {"ended", i.ended},
            {"outcome", text_or_null(i.outcome)},
            {"verdict", text_or_null(i.verdict)},
            {"promoted", i.promoted},
            {"counted", i.counted},
            {"reason", text_or_null(i.reason)},
            {"sign", text_or_null(i.sign)},
            {"started_at", i.started},
            {"finished_at", text_or_null(i.finished)},
            {"base", text_or_null(i.base)},
            {"branch", text_or_null(i.branch)},
            {"head", text_or_null(i.head)},
            {"diff", text_or_null(i.diff)},
            {"commits", i.commits},
            {"files_changed", i.files},
            {"kept_at", text_or_null(kept_at_text(e))},
            {"judge_again", text_or_null(judge_again_text(e))},
            {"leftovers_patch", text_or_null(i.patch)},
            {"protected", text_or_null(i.protected_paths)},
            {"gone", text_or_null(i.gone)},
            {"settled", text_or_null(i.settled)},
            {"log_commit", text_or_null(i.log_commit)},
            {"log_iteration", text_or_null(i.log_number)},
            {"cost",
             {{"wall_ms", i.wall_ms},
              {"agent_ms", i.agent_ms},
              {"tpu_ms", i.tpu_ms},
              {"tokens", json::or_null(i.tokens)},
              {"retries", i.retries()}}},
            {"attempts", attempts_json(i)},
            {"stages", stages_json(i)},
            {"measured", measured_json(e)},
            {"files", std::move(files)}};
}

}  // namespace gdnctl::loop
