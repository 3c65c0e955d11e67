#include "loop/report/run_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/redact.h"
#include "platform/fs.h"
#include "runlog/records/record.h"

namespace gdnctl::loop::report {

namespace {

using loop::IterationView;
using loop::RunView;

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

void apply_measured(Report& report) {
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

using loop::shown;

// "1.77x faster": the product of the gains of this run's promotions, because values that were measured at different
// times do not compare. Empty: one of them is not known.
std::string gain_of_promotions(const Report& report) {
    runlog::Gain all;
    double factor = 1;
    for (std::size_t i = 0; i < report.of_iteration.size(); ++i) {
        if (!report.run.view.iterations[i].promoted) continue;
        const loop::MeasuredView* own = report.of_iteration[i];
        if (own == nullptr || !own->gain || !own->gain->factor) return {};
        factor *= *own->gain->factor;
        all = *own->gain;
    }
    all.factor = factor;
    all.low = all.high = std::nullopt;
    const std::string text = gain_text(all);
    return text.substr(0, text.find(" ("));
}

std::string result_sentence(const Report& report) {
    const RunView& view = report.run.view;
    if (view.ended == 0) return "No iteration has ended yet.";
    const auto kept = std::count_if(view.iterations.begin(), view.iterations.end(), [](const IterationView& i) {
        return i.ended && (i.kept() || i.outcome == "accepted");
    });
    const std::string of_all = fmt::format("{} iteration{}", view.ended, view.ended == 1 ? "" : "s");
    if (kept == 0) return fmt::format("None of {} was accepted.", of_all);
    if (view.promotions == 0 || report.champions.size() < 2) {
        return fmt::format("{} of {} {} accepted, {} promoted.", kept, of_all, kept == 1 ? "was" : "were",
                           view.promotions);
    }
    const std::string name = shown(report.metric, 60), now = value_text(*report.champions.back());
    const std::string after =
        fmt::format("{} promotion{} out of {}", view.promotions, view.promotions == 1 ? "" : "s", of_all);
    const std::string gain = gain_of_promotions(report);
    if (gain.empty()) {
        return fmt::format("{} went from {} to {} in {}.", name, value_text(*report.champions.front()), now, after);
    }
    return fmt::format("{} is {} after {}: {} now.", name, gain, after, now);
}

Heading heading_of(const Report& report) {
    const Json config = Json::parse(report.run.view.config, nullptr, false);
    const auto root = find_repository_root(report.run.log_dir);
    return {config.is_object() ? shown(json::text(config, "target"), 60) : std::string(),
            root ? shown(root->filename().string(), 60) : std::string(), loop::agent_text(config),
            dates_text(report.run.view.started, report.run.view.last), result_sentence(report)};
}

// Escapes text for a table cell, so that none of it is markup.
std::string cell(std::string_view text, std::size_t columns = 200) {
    std::string out;
    for (const char c : shown(text, columns)) {
        if (std::string_view("\\`*_{}[]<>|#~&").find(c) != std::string_view::npos) out += '\\';
        out += c;
    }
    return out;
}

// The title of the candidate that was measured; a baseline has none.
std::string title_of(const Report& report, const loop::MeasuredView& one) {
    for (std::size_t at = 0; at < report.of_iteration.size(); ++at) {
        if (report.of_iteration[at] == &one) return report.run.view.iterations[at].title;
    }
    return {};
}

std::string heading_part(const Report& report) {
    const auto& view = report.run.view;
    std::string text = fmt::format("# Run {}\n\n{}\n\n| | |\n|---|---|\n", cell(view.run), cell(report.heading.result));
    const auto row = [&text](std::string_view name, const std::string& value) {
        if (!value.empty()) text += fmt::format("| {} | {} |\n", name, value);
    };
    row("target", cell(report.heading.target));
    row("repository", cell(report.heading.repository));
    row("agent", cell(report.heading.agent));
    row("dates", cell(report.heading.dates));
    row("state", cell(standing(report.run)));
    row("iterations", fmt::format("{} of {} have ended, {} promoted, {} counted as failures", view.ended, view.total,
                                  view.promotions, view.failures));
    row("cost", cost_text({view.wall_ms, view.agent_ms, view.tpu_ms, view.tokens}));
    return text;
}

std::string champions_part(const Report& report) {
    if (report.champions.empty()) return {};
    std::string text = fmt::format("\n## Champions ({})\n\n", cell(report.metric));
    if (report.noise_pct) {
        text += fmt::format("Measurements of identical code differ by {} % (one standard deviation).\n\n",
                            number_for_people(*report.noise_pct, 3));
    }
    text +=
        "| iteration | title | commit | value | gain over the previous champion | decision "
        "|\n|---:|---|---|---:|---|---|\n";
    for (const auto* one : report.champions) {
        text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", one->iteration, cell(title_of(report, *one), 60),
                            short_commit(one->commit), value_text(*one), gain_text(one),
                            cell(runlog::decision_words(one->decision)));
    }
    return text;
}

std::string failures_part(const Report& report) {
    if (report.failures.empty()) return {};
    std::string text = "\n## What was not accepted\n\n| result | count | most often |\n|---|---:|---|\n";
    for (const FailureClass& one : report.failures) {
        std::string most;
        int times = 0;
        for (const auto& [sign, count] : one.signs) {
            if (count > times) most = sign;
            times = std::max(times, count);
        }
        text += fmt::format("| {} | {} | {} |\n", cell(runlog::outcome_phrase(one.outcome)), one.count,
                            cell(runlog::reason_words(most)));
    }
    return text;
}

std::string memory_part(const Report& report) {
    std::string text;
    const auto dead = loop::dead_ideas(report.ideas);
    if (!dead.empty()) text += "\n## Ideas that were rejected repeatedly\n\n";
    for (const auto& one : dead) {
        text += fmt::format("- {}: {} times; {}\n", cell(loop::idea_id(one.idea)), one.failed, cell(one.last_reason));
    }
    if (!report.slots.empty())
        text += "\n## Slots\n\n| slot | | tries | accepted | rejected | |\n|---|---|---:|---:|---:|---|\n";
    for (const auto& one : report.slots) {
        text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", cell(one.slot.slot), cell(one.slot.title), one.tries,
                            one.won, one.failed, one.open() ? "open" : "");
    }
    if (!report.flakes.empty()) {
        text += "\n## Flaky tests\n\n| test | failed | passed alone | max abs |\n|---|---:|---:|---:|\n";
    }
    for (const auto& one : report.flakes) {
        text += fmt::format("| {} | {} | {} | {} |\n", cell(one.test), one.seen, one.passed_alone,
                            one.largest ? number_for_people(*one.largest) : "");
    }
    if (!report.trouble.empty()) text += "\n## Current infrastructure problems\n\n";
    for (const auto& one : report.trouble) {
        text +=
            fmt::format("- {}, {} times, last in iteration {}: {}\n", cell(runlog::outcome_words(one.outcome).cause),
                        one.times, one.last_iteration, cell(one.sign));
    }
    return text;
}

// "3", or "3 (log 12)" if the running log has another number.
std::string both_numbers(const IterationView& i) {
    const std::string own = std::to_string(i.number);
    return i.log_number.empty() || i.log_number == own ? own : fmt::format("{} (log {})", own, cell(i.log_number, 20));
}

std::string iterations_part(const Report& report) {
    const auto& all = report.run.view.iterations;
    if (all.empty()) return {};
    std::string text = "\n## Iterations\n\n";
    if (report.measured) {
        text +=
            "A gain is over the champion at that time, from alternating pairs of runs if their number is given. "
            "`gdnctl loop-explain N` shows what was compared.\n\n";
    }
    const auto& view = report.run.view;
    const auto column = [](bool wanted, const std::string& value) { return wanted ? value + " | " : std::string(); };
    text +=
        fmt::format("| # | title | result | value | gain | time | {}{}why |\n|---:|---|---|---:|---|---:|{}{}---|\n",
                    column(view.tpu_ms > 0, "device"), column(view.tokens.has_value(), "tokens"),
                    view.tpu_ms > 0 ? "---:|" : "", view.tokens ? "---:|" : "");
    for (std::size_t at = 0; at < all.size(); ++at) {
        const IterationView& i = all[at];
        const auto* m = report.of_iteration[at];
        text +=
            fmt::format("| {} | {} | {} | {} | {} | {} | {}{}{} |\n", both_numbers(i), cell(i.title, 60),
                        cell(verdict_text(i)), m != nullptr ? value_text(*m) : "", gain_text(m),
                        duration_text(i.wall_ms), column(view.tpu_ms > 0, i.tpu_ms > 0 ? duration_text(i.tpu_ms) : ""),
                        column(view.tokens.has_value(), loop::grouped(i.tokens)), cell(why_text(i)));
    }
    return text;
}

}  // namespace

Result<Report> make_report(const std::filesystem::path& log_dir) {
    Report report;
    GDNCTL_TRY_ASSIGN(report.run, loop::load_run(log_dir));
    GDNCTL_TRY_ASSIGN(report.measured, loop::read_measured(report.run));
    apply_measured(report);
    report.failures = failure_classes(report.run.view);
    GDNCTL_TRY_ASSIGN(const auto ledger, loop::read_ledger(log_dir));
    report.ideas = loop::past_ideas(ledger);
    GDNCTL_TRY_ASSIGN(const auto slots, loop::read_coverage(log_dir));
    report.slots = loop::coverage(slots, report.ideas);
    GDNCTL_TRY_ASSIGN(const auto flakes, loop::read_flakes(log_dir));
    report.flakes = loop::flake_table(flakes);
    report.trouble = loop::standing_problems(report.run.view);
    report.files = loop::evidence(log_dir);
    report.heading = heading_of(report);
    return report;
}

Json champions_json(const Report& report) {
    Json champions = Json::array();
    for (const auto* one : report.champions) {
        champions.push_back({{"iteration", one->iteration},
                             {"commit", one->commit},
                             {"value", *one->value},
                             {"unit", json::or_null(one->unit)},
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
                          {"max_abs", json::or_null(one.largest)}});
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
            {"metric", json::or_null(report.metric)},
            {"better", json::or_null(report.better)},
            {"noise_pct", json::or_null(report.noise_pct)},
            {"champions", champions_json(report)},
            {"outcomes", view.outcomes},
            {"failures", failures_json(report)},
            {"cost",
             {{"wall_ms", view.wall_ms},
              {"agent_ms", view.agent_ms},
              {"tpu_ms", view.tpu_ms},
              {"tokens", json::or_null(view.tokens)}}},
            {"dead_ideas", std::move(dead)},
            {"slots", std::move(slots)},
            {"flakes", std::move(flakes)},
            {"iterations", std::move(iterations)}};
}

std::string report_markdown(const Report& report) {
    return heading_part(report) + champions_part(report) + failures_part(report) + memory_part(report) +
           iterations_part(report);
}

}  // namespace gdnctl::loop::report
