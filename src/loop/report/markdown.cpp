#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/for_people.h"
#include "loop/report/data.h"
#include "loop/report/verdict_words.h"
#include "runlog/records/words.h"

namespace gdnctl::loop::report {

namespace {

using loop::IterationView;
using loop::shown;

// Escapes text for a table cell, so that none of it is markup.
std::string cell(std::string_view text, std::size_t columns = 200) {
    std::string out;
    for (const char c : shown(text, columns)) {
        if (std::string_view("\\`*_{}[]<>|#~&").find(c) != std::string_view::npos) out += '\\';
        out += c;
    }
    return out;
}

// Of the candidate of its iteration; a baseline has none.
std::string title_of(const Report& report, const loop::MeasuredView& one) {
    for (std::size_t at = 0; at < report.of_iteration.size(); ++at) {
        if (report.of_iteration[at] == &one) return report.run.view.iterations[at].title;
    }
    return {};
}

std::string heading_part(const Report& report) {
    const auto& view = report.run.view;
    std::string text =
        fmt::format("# Run {}\n\n{}. {} of {} iterations have ended, {} promoted, {} counted as failures.\n",
                    cell(view.run), cell(standing(report.run)), view.ended, view.total, view.promotions, view.failures);
    text += fmt::format("\n| cost | |\n|---|---|\n| time | {} |\n| agent | {} |\n| device | {} |\n| tokens | {} |\n",
                        duration_text(view.wall_ms), duration_text(view.agent_ms), duration_text(view.tpu_ms),
                        loop::grouped(view.tokens));
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
        text += fmt::format("| {} | {} | {} |\n", cell(runlog::outcome_phrase(one.outcome)), one.count, cell(most));
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
    text +=
        "| # | title | result | value | gain | time | device | tokens | why |\n"
        "|---:|---|---|---:|---|---:|---:|---:|---|\n";
    for (std::size_t at = 0; at < all.size(); ++at) {
        const IterationView& i = all[at];
        const auto* m = report.of_iteration[at];
        text +=
            fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", both_numbers(i), cell(i.title, 60),
                        cell(verdict_text(i)), m != nullptr ? value_text(*m) : "", gain_text(m),
                        duration_text(i.wall_ms), duration_text(i.tpu_ms), loop::grouped(i.tokens), cell(why_text(i)));
    }
    return text;
}

}  // namespace

std::string report_markdown(const Report& report) {
    return heading_part(report) + champions_part(report) + failures_part(report) + memory_part(report) +
           iterations_part(report);
}

}  // namespace gdnctl::loop::report
