#include "loop/evolve/report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "loop/evolve/prompt.h"
#include "loop/measure/pairs.h"
#include "render/page.h"
#include "render/svg.h"

namespace gdnctl::loop::evolve {

namespace {

using html::escaped;
using svg::Anchor;

const html::Look& look() {
    static const html::Look k_look{{{"best", "#1d6fd1", "#62a8ff"},
                                    {"kept", "#3f8f52", "#5cb874"},
                                    {"tie", "#8b6fb8", "#a98bd8"},
                                    {"rejected", "#c44e52", "#e8696e"},
                                    {"other", "#b4bcc5", "#59636e"}},
                                   R"css(
.edge { stroke: var(--line); stroke-width: 1.4; fill: none; } .best { stroke: var(--best); stroke-width: 3; }
.bar { stroke-width: 2; } .bar.kept { stroke: var(--kept); } .bar.tie { stroke: var(--tie); }
.bar.rejected { stroke: var(--rejected); }
)css"};
    return k_look;
}

std::string_view colour_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::kept: return "kept";
        case Verdict::tie: return "tie";
        case Verdict::rejected:
        case Verdict::invalid:
        case Verdict::tampered: return "rejected";
        default: return "other";
    }
}

// Attempts from left to right, a row for each lineage; lines lead to parents.
std::string tree_svg(const State& state) {
    constexpr double k_step = 34, k_row = 46, k_left = 80, k_top = 24;
    const auto x = [&](int number) { return k_left + k_step * number; };
    const auto y = [&](const Attempt& one) { return k_top + k_row * (one.number == 0 ? 0 : one.lineage); };
    const double width = x(static_cast<int>(state.attempts.size())), height = k_top + k_row * state.rules.lineages;
    std::string out = svg::open(width, height, "Tree");
    for (int k = 0; k < state.rules.lineages; ++k) {
        out += svg::text(0, k_top + k_row * k + 4, fmt::format("lineage {}", k));
    }
    for (const Attempt& one : state.attempts) {
        for (const int number : one.parents) {
            const Attempt& parent = state.at(number);
            const double middle = (x(number) + x(one.number)) / 2;
            out +=
                svg::path({"edge"}, fmt::format("M{:.0f} {:.0f} C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}", x(number),
                                                y(parent), middle, y(parent), middle, y(one), x(one.number), y(one)));
        }
    }
    for (const Attempt& one : state.attempts) {
        const auto css = fmt::format("{}{}", colour_of(one.verdict), one.number == state.best ? " best" : "");
        const auto title = fmt::format("{} {} {} {}", one.number, one.technique, verdict_word(one), one.reason);
        out += svg::circle({css, title}, x(one.number), y(one), 8) +
               svg::text(x(one.number), y(one) + 21, std::to_string(one.number), Anchor::middle);
    }
    return out.append(svg::k_close);
}

std::string gains_svg(const State& state) {
    constexpr double k_step = 34, k_left = 80, k_height = 180, k_margin = 16;
    double low = 0, high = .001;
    for (const Attempt& one : state.attempts) {
        if (!one.gate || one.number == 0) continue;
        low = std::min(low, one.gate->lo);
        high = std::max(high, one.gate->hi);
    }
    // A candidate that is many times slower would flatten all others, so it is drawn at the edge, with its value.
    low = std::max(low, -std::max(2 * high, .05));
    const auto y = [&](double gain) {
        return k_margin + (high - std::max(gain, low)) / (high - low) * (k_height - 2 * k_margin);
    };
    const double width = k_left + k_step * static_cast<double>(state.attempts.size());
    std::string out = svg::open(width, k_height + 20, "Gains");
    for (const double gain : {low, 0.0, high}) {
        out += svg::line("axis", k_left - 20, y(gain), width, y(gain)) +
               svg::text(0, y(gain) + 4, fmt::format("{:+.1f} %", to_percent(gain)));
    }
    for (const Attempt& one : state.attempts) {
        if (!one.gate || one.number == 0) continue;
        const double x = k_left + k_step * one.number;
        const std::string_view colour = colour_of(one.verdict);
        out += svg::line(fmt::format("bar {}", colour), x, y(one.gate->lo), x, y(one.gate->hi)) +
               svg::circle({colour, gain_text(*one.gate)}, x, y(one.gate->est), 4) +
               svg::text(x, k_height + 14, std::to_string(one.number), Anchor::middle);
        if (one.gate->est < low) {
            out += svg::text(x, y(low) - 8, fmt::format("{:+.0f} %", to_percent(one.gate->est)), Anchor::middle);
        }
    }
    return out.append(svg::k_close);
}

std::string attempts_table(const State& state) {
    html::Table table(
        "N@n|operator|technique|lineage@n|verdict|gain over the champion, or why|tokens@n|device s@n|commit");
    for (const Attempt& one : state.attempts) {
        if (one.number == 0) continue;
        table.row({std::to_string(one.number), to_text(one.op), escaped(one.technique), std::to_string(one.lineage),
                   verdict_word(one), escaped(one.gate ? gain_text(*one.gate) : one.reason),
                   one.tokens ? std::to_string(*one.tokens) : std::string("unknown"),
                   fmt::format("{:.1f}", one.device_s), one.commit.substr(0, 7)});
    }
    return table.section("Attempts");
}

// Text of a table's cell in Markdown.
std::string cell(std::string_view text) {
    std::string out;
    for (const char c : text::visible(text)) {
        if (c == '|') out += '\\';
        out += c == '\n' ? ' ' : c;
    }
    return out;
}

}  // namespace

std::string report_markdown(const RunView& view) {
    const State& state = view.state;
    std::string out = fmt::format("# Evolve run {}\n\n```\n{}```\n\n## Attempts\n\n", state.run, status_text(view));
    out +=
        "| N | operator | technique | lineage | verdict | gain over the champion, or why | commit "
        "|\n|---|---|---|---|---|---|---|\n";
    for (const Attempt& one : state.attempts) {
        if (one.number == 0) continue;
        out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", one.number, to_text(one.op), cell(one.technique),
                           one.lineage, verdict_word(one), cell(one.gate ? gain_text(*one.gate) : one.reason),
                           one.commit.substr(0, 7));
    }
    const std::string known = insights(state);
    if (!known.empty()) out += "\n## What is known\n\n" + known;
    return out;
}

std::string report_html(const RunView& view) {
    const State& state = view.state;
    const Attempt& best = state.at(state.best);
    const std::string best_text = best.number == 0
                                      ? std::string("the base commit")
                                      : fmt::format("attempt {}, {}", best.number, against_base_text(best));
    const std::string body =
        fmt::format("<h1>Evolve run {}</h1>\n", escaped(state.run)) +
        html::facts({{"best", best_text},
                     {"attempts", std::to_string(state.attempts.size() - 1)},
                     {"noise of a pair",
                      state.noise_measured ? fmt::format("{:.2f} %", to_percent(state.noise_sd)) : std::string()},
                     {"tokens", std::to_string(state.spent.tokens)},
                     {"device", fmt::format("{:.0f} s", state.spent.device_s)},
                     {"wall", fmt::format("{:.0f} s", state.spent.wall_s)}}) +
        html::section("Tree", tree_svg(state)) +
        html::section("Gains against the champion at that time", gains_svg(state)) + attempts_table(state);
    return html::document("Evolve run " + state.run, look(), body);
}

Json report_json(const RunView& view) {
    Json out = status_json(view);
    out["all"] = log_json(view.state);
    return out;
}

}  // namespace gdnctl::loop::evolve
