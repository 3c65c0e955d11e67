#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/redact.h"
#include "loop/report/data.h"
#include "loop/report/verdict_words.h"

namespace gdnctl::loop::report {

namespace {

using loop::IterationView;

std::vector<FailureClass> failure_classes(const loop::RunView& view) {
    std::vector<FailureClass> list;
    for (const IterationView& i : view.iterations) {
        if (!i.ended || i.outcome == "accepted" || i.kept()) continue;
        auto at = std::find_if(list.begin(), list.end(), [&](const auto& one) { return one.outcome == i.outcome; });
        if (at == list.end()) {
            at = list.insert(list.end(), FailureClass{});
            at->outcome = i.outcome;
        }
        ++at->count;
        at->iterations.push_back(i.number);
        ++at->signs[loop::shown(i.sign.empty() ? i.reason : i.sign, 120)];
    }
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
    return list;
}

// Champions under the conditions of this run only.
std::vector<const loop::MeasuredView*> champions_of(const loop::MeasuredRun& measured) {
    std::vector<const loop::MeasuredView*> list;
    const auto& key = measured.champion ? measured.champion->key : measured.history.back().key;
    for (const auto& one : measured.history) {
        if (one.became_champion() && one.value && one.key == key) list.push_back(&one);
    }
    return list;
}

std::string better_side(const loop::MeasuredRun& measured) {
    for (const auto& one : measured.history) {
        if (one.gain && one.gain->pairs > 0) return one.gain->lower_is_better ? "lower" : "higher";
    }
    return {};
}

void take_measured(Report& report) {
    report.of_iteration.assign(report.run.view.iterations.size(), nullptr);
    if (!report.measured || report.measured->history.empty()) return;
    for (std::size_t i = 0; i < report.of_iteration.size(); ++i) {
        report.of_iteration[i] = report.measured->of(report.run.view.iterations[i]);
    }
    report.champions = champions_of(*report.measured);
    report.noise_pct = report.measured->noise_pct();
    report.better = better_side(*report.measured);
    report.metric =
        report.measured->champion ? report.measured->champion->metric : report.measured->history.back().metric;
}

Json iteration_json(const Report& report, std::size_t at) {
    const IterationView& i = report.run.view.iterations[at];
    const auto files = report.files.find(i.number);
    const Explained explained{i,
                              report.run.view.run,
                              report.run.log_dir,
                              report.of_iteration[at],
                              report.measured ? &*report.measured : nullptr,
                              files == report.files.end() ? std::vector<std::string>() : files->second};
    return explained_json(explained);
}

Json failures_json(const Report& report) {
    Json list = Json::array();
    for (const FailureClass& one : report.failures) {
        Json signs = Json::object();
        for (const auto& [sign, count] : one.signs) signs[sign] = count;
        list.push_back({{"outcome", redact(one.outcome)},
                        {"count", one.count},
                        {"iterations", one.iterations},
                        {"signs", std::move(signs)}});
    }
    return list;
}

}  // namespace

Result<Report> make_report(const std::filesystem::path& log_dir) {
    Report report;
    GDNCTL_TRY_ASSIGN(report.run, loop::load_run(log_dir));
    GDNCTL_TRY_ASSIGN(report.measured, loop::read_measured(report.run));
    take_measured(report);
    report.failures = failure_classes(report.run.view);
    GDNCTL_TRY_ASSIGN(const auto ledger, loop::read_ledger(log_dir));
    report.ideas = loop::past_ideas(ledger);
    GDNCTL_TRY_ASSIGN(const auto slots, loop::read_coverage(log_dir));
    report.slots = loop::coverage(slots, report.ideas);
    GDNCTL_TRY_ASSIGN(const auto flakes, loop::read_flakes(log_dir));
    report.flakes = loop::flake_table(flakes);
    report.trouble = loop::standing_trouble(report.run.view);
    report.files = loop::evidence(log_dir);
    return report;
}

Json champions_json(const Report& report) {
    Json champions = Json::array();
    for (const auto* one : report.champions) {
        champions.push_back({{"iteration", one->iteration},
                             {"commit", one->commit},
                             {"value", *one->value},
                             {"unit", one->unit.empty() ? Json() : Json(one->unit)},
                             {"gain", one->gain ? runlog::gain_json(*one->gain) : Json()},
                             {"decision", one->decision}});
    }
    return champions;
}

Json report_json(const Report& report) {
    const auto& view = report.run.view;
    Json dead = Json::array();
    for (const auto& one : loop::dead_ideas(report.ideas)) {
        dead.push_back({{"id", redact(loop::idea_id(one.idea))},
                        {"title", redact(one.idea.title)},
                        {"refused", one.failed},
                        {"iterations", one.iterations},
                        {"reason", redact(one.last_reason)}});
    }
    Json slots = Json::array();
    for (const auto& one : report.slots) {
        slots.push_back({{"slot", redact(one.slot.slot)},
                         {"title", redact(one.slot.title)},
                         {"open", one.open()},
                         {"tries", one.tries},
                         {"won", one.won},
                         {"refused", one.failed}});
    }
    Json flakes = Json::array();
    for (const auto& one : report.flakes) {
        flakes.push_back({{"test", redact(one.test)},
                          {"seen", one.seen},
                          {"passed_alone", one.passed_alone},
                          {"max_abs", one.largest ? Json(*one.largest) : Json()}});
    }
    Json iterations = Json::array();
    for (std::size_t i = 0; i < view.iterations.size(); ++i) iterations.push_back(iteration_json(report, i));
    return {{"schema", "gdnctl.loop-report/1"},
            {"log_dir", report.run.log_dir.string()},
            {"run", view.run},
            {"status", word_of(status_of(report.run))},
            {"started_at", view.started},
            {"last_record_at", view.last},
            {"iterations_total", view.total},
            {"iterations_ended", view.ended},
            {"promotions", view.promotions},
            {"metric", report.metric.empty() ? Json() : Json(report.metric)},
            {"better", report.better.empty() ? Json() : Json(report.better)},
            {"noise_pct", report.noise_pct ? Json(*report.noise_pct) : Json()},
            {"champions", champions_json(report)},
            {"outcomes", view.outcomes},
            {"failures", failures_json(report)},
            {"cost",
             {{"wall_ms", view.wall_ms},
              {"agent_ms", view.agent_ms},
              {"tpu_ms", view.tpu_ms},
              {"tokens", view.tokens ? Json(*view.tokens) : Json()}}},
            {"dead_ideas", std::move(dead)},
            {"slots", std::move(slots)},
            {"flakes", std::move(flakes)},
            {"iterations", std::move(iterations)}};
}

}  // namespace gdnctl::loop::report
