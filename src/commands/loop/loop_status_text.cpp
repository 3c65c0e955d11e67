#include "commands/loop/loop_status_text.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/redact.h"
#include "loop/report/verdict_words.h"
#include "runlog/records/words.h"

namespace gdnctl::commands::loop_status {

using namespace loop;

namespace {

using loop::IterationView;
using loop::shown;

constexpr std::size_t k_last_shown = 8;

std::string open_text(const loop::LoadedRun& run, WallTime now) {
    if (status_of(run) == LoopStatus::ended) return {};
    std::string line = run.view.step_text();
    const auto last = parse_iso8601(run.view.last);
    if (run.holder && last && now > *last) line += ", for " + format_duration(now - *last);
    const auto& state = run.view;
    if (state.open == 0) return fmt::format("{} of {} ended; {}", state.ended, state.total, line);
    return fmt::format("{} of {}: {}", state.open, state.total, line);
}

std::string promoted_text(const loop::RunView& view) {
    if (view.promotions == 0) return "none yet";
    const auto last = std::find_if(view.iterations.rbegin(), view.iterations.rend(),
                                   [](const IterationView& i) { return i.promoted; });
    return fmt::format("{}, the last in iteration {}; {} since", view.promotions, last->number, view.since_promotion);
}

std::string cost_text(const loop::RunView& view) {
    std::string line = fmt::format("{}; agent {}", duration_text(view.wall_ms), duration_text(view.agent_ms));
    if (view.tpu_ms > 0) line += fmt::format(", device {}", duration_text(view.tpu_ms));
    return line + (view.tokens ? fmt::format(", {} tokens", loop::grouped(*view.tokens)) : ", tokens unknown");
}

// A reason from the performance policy includes the gain.
std::string why_of(const IterationView& i, const loop::MeasuredRun* measured) {
    const loop::MeasuredView* own = measured == nullptr ? nullptr : measured->of(i);
    const std::string gain = gain_text(own);
    const std::string_view cause = i.ended ? runlog::outcome_words(i.outcome).cause : std::string_view();
    std::string why = runlog::reason_words(i.reason);
    if (!cause.empty()) why = std::string(cause) + (why.empty() ? "" : ": ") + why;
    if (gain.empty() || i.reason.find(runlog::gain_text(*own->gain)) != std::string::npos) return why;
    return gain + (why.empty() ? "" : "; ") + why;
}

// The running log may have had entries before this run; if so, its numbers get their own column.
bool has_other_number(const IterationView& i) {
    return !i.log_number.empty() && i.log_number != std::to_string(i.number);
}

std::string log_column(bool wanted, std::string_view text) { return wanted ? fmt::format("  {:>4}", text) : ""; }

std::string iteration_row(const IterationView& i, bool with_log, const loop::MeasuredRun* measured) {
    const std::string title = shown(i.title, 30), why = why_of(i, measured);
    const std::string what = title + (title.empty() || why.empty() ? "" : ": ") + shown(why, 200);
    return fmt::format("{:>4}{}  {:<9}  {:>12}  {:>12}{}{}", i.number, log_column(with_log, i.log_number),
                       shown(i.ended ? result_word(i) : "open", 9), duration_text(i.wall_ms), loop::grouped(i.tokens),
                       what.empty() ? "" : "  ", what);
}

}  // namespace

std::string status_text(const loop::LoadedRun& run, const loop::MeasuredRun* measured, WallTime now, int columns) {
    const auto width = static_cast<std::size_t>(columns);
    const auto& view = run.view;
    std::string text;
    const auto line = [&](std::string_view name, const std::string& value) {
        if (!value.empty()) text += shown(fmt::format("{:<10} {}", name, value), width) + "\n";
    };
    line("run", fmt::format("{} {}", shown(view.run, 40), standing(run)));
    line("log", shown(run.log_dir.string()));
    line("iteration", open_text(run, now));
    if (view.ended > 0) {
        line("ended", fmt::format("{}: {}; {} counted as failures", view.ended,
                                  results_text(view.outcomes, view.promotions), view.failures));
        line("promoted", promoted_text(view));
    }
    line("cost", cost_text(view));
    if (view.iterations.empty()) return text;
    const bool with_log = std::any_of(view.iterations.begin(), view.iterations.end(), has_other_number);
    text += "\n" +
            shown(fmt::format("{:>4}{}  {:<9}  {:>12}  {:>12}  {}", "ITER", log_column(with_log, "LOG"), "RESULT",
                              "TIME", "TOKENS", "TITLE: WHY"),
                  width) +
            "\n";
    const std::size_t first = view.iterations.size() - std::min(view.iterations.size(), k_last_shown);
    for (std::size_t i = first; i < view.iterations.size(); ++i) {
        text += shown(iteration_row(view.iterations[i], with_log, measured), width) + "\n";
    }
    return text;
}

namespace {

Json brief_of(const IterationView& i, const loop::MeasuredRun* measured) {
    const loop::MeasuredView* own = measured == nullptr ? nullptr : measured->of(i);
    return {{"iteration", i.number},
            {"title", i.title.empty() ? Json() : Json(redact(i.title))},
            {"outcome", i.outcome.empty() ? Json() : Json(redact(i.outcome))},
            {"verdict", i.verdict.empty() ? Json() : Json(redact(i.verdict))},
            {"ended", i.ended},
            {"counted", i.counted},
            {"promoted", i.promoted},
            {"attempts", i.attempts.size()},
            {"wall_ms", i.wall_ms},
            {"agent_ms", i.agent_ms},
            {"tpu_ms", i.tpu_ms},
            {"tokens", i.tokens ? Json(*i.tokens) : Json()},
            {"log_iteration", i.log_number.empty() ? Json() : Json(i.log_number)},
            {"gain", own != nullptr && own->gain ? runlog::gain_json(*own->gain) : Json()},
            {"reason", redact(i.reason)}};
}

}  // namespace

Json status_json(const loop::LoadedRun& run, const loop::MeasuredRun* measured) {
    const auto& view = run.view;
    Json outcomes = Json::object();
    for (const auto& [name, count] : view.outcomes) outcomes[redact(name)] = count;
    Json iterations = Json::array();
    for (const IterationView& i : view.iterations) iterations.push_back(brief_of(i, measured));
    return {{"schema", "gdnctl.loop-status/1"},
            {"log_dir", run.log_dir.string()},
            {"run", view.run},
            {"status", word_of(status_of(run))},
            {"pid", run.holder ? Json(run.holder->pid) : Json()},
            {"stop_asked", run.stop_asked},
            {"started_at", view.started},
            {"last_record_at", view.last},
            {"isolation", view.isolation},
            {"iterations_total", view.total},
            {"iterations_ended", view.ended},
            {"iteration_open", view.open == 0 ? Json() : Json(view.open)},
            {"next_step", view.next},
            {"outcomes", std::move(outcomes)},
            {"failures_counted", view.failures},
            {"promotions", view.promotions},
            {"since_promotion", view.since_promotion},
            {"stop_reason", view.stop_rc ? Json(redact(view.stop_reason)) : Json()},
            {"stop_exit_code", view.stop_rc ? Json(*view.stop_rc) : Json()},
            {"wall_ms", view.wall_ms},
            {"agent_ms", view.agent_ms},
            {"tpu_ms", view.tpu_ms},
            {"tokens", view.tokens ? Json(*view.tokens) : Json()},
            {"journal_records", view.records},
            {"iterations", std::move(iterations)}};
}

}  // namespace gdnctl::commands::loop_status
