#include "loop/evolve/report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "loop/evolve/prompt.h"
#include "loop/measure/pairs.h"
#include "render/html_page.h"

namespace gdnctl::loop::evolve {

namespace {

using html::escaped;

constexpr std::string_view k_style = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #56606b; --line: #d5dae0; --best: #1d6fd1;
  --kept: #3f8f52; --tie: #8b6fb8; --rejected: #c44e52; --other: #b4bcc5; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --ink: #e4e8ec; --soft: #a3adb8; --line: #333a43;
  --best: #62a8ff; --kept: #5cb874; --tie: #a98bd8; --rejected: #e8696e; --other: #59636e; } }
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 64rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
td, th { padding: .2rem 1rem .2rem 0; text-align: left; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
svg text { fill: var(--soft); font-size: 12px; } .edge { stroke: var(--line); stroke-width: 1.4; fill: none; }
.axis { stroke: var(--line); } .kept { fill: var(--kept); } .tie { fill: var(--tie); } .rejected { fill: var(--rejected); }
.other { fill: var(--other); } .best { stroke: var(--best); stroke-width: 3; }
.bar { stroke-width: 2; } .bar.kept { stroke: var(--kept); } .bar.tie { stroke: var(--tie); }
.bar.rejected { stroke: var(--rejected); }
dl { display: flex; flex-wrap: wrap; gap: .4rem 2.2rem; } dt { color: var(--soft); font-size: .85em; } dd { margin: 0; }
)css";

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
    std::string out = fmt::format(
        "<div class=wide><svg width=\"{:.0f}\" height=\"{:.0f}\" role=\"img\" aria-label=\"Tree\">\n", width, height);
    for (int k = 0; k < state.rules.lineages; ++k) {
        out += fmt::format("<text x=\"0\" y=\"{:.0f}\">lineage {}</text>\n", k_top + k_row * k + 4, k);
    }
    for (const Attempt& one : state.attempts) {
        for (const int number : one.parents) {
            const Attempt& parent = state.at(number);
            const double middle = (x(number) + x(one.number)) / 2;
            out += fmt::format("<path class=edge d=\"M{:.0f} {:.0f} C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}\"/>\n",
                               x(number), y(parent), middle, y(parent), middle, y(one), x(one.number), y(one));
        }
    }
    for (const Attempt& one : state.attempts) {
        out += fmt::format("<circle class=\"{}{}\" cx=\"{:.0f}\" cy=\"{:.0f}\" r=\"8\"><title>{}</title></circle>\n",
                           colour_of(one.verdict), one.number == state.best ? " best" : "", x(one.number), y(one),
                           escaped(fmt::format("{} {} {}", one.number, verdict_word(one), one.reason)));
        out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n", x(one.number),
                           y(one) + 21, one.number);
    }
    return out + "</svg></div>\n";
}

std::string gains_svg(const State& state) {
    constexpr double k_step = 34, k_left = 80, k_height = 180, k_margin = 16;
    double low = 0, high = .001;
    for (const Attempt& one : state.attempts) {
        if (!one.measured || one.number == 0) continue;
        low = std::min(low, one.measured->lo);
        high = std::max(high, one.measured->hi);
    }
    const auto y = [&](double gain) { return k_margin + (high - gain) / (high - low) * (k_height - 2 * k_margin); };
    const double width = k_left + k_step * static_cast<double>(state.attempts.size());
    std::string out =
        fmt::format("<div class=wide><svg width=\"{:.0f}\" height=\"{:.0f}\" role=\"img\" aria-label=\"Gains\">\n",
                    width, k_height + 20);
    for (const double gain : {low, 0.0, high}) {
        out += fmt::format(
            "<line class=axis x1=\"{}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"0\" y=\"{:.1f}\">{:+.1f} "
            "%</text>\n",
            k_left - 20, width, y(gain), y(gain), y(gain) + 4, to_percent(gain));
    }
    for (const Attempt& one : state.attempts) {
        if (!one.measured || one.number == 0) continue;
        const double x = k_left + k_step * one.number;
        const std::string_view colour = colour_of(one.verdict);
        out += fmt::format("<line class=\"bar {}\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", colour,
                           x, x, y(one.measured->lo), y(one.measured->hi));
        out += fmt::format("<circle class=\"{}\" cx=\"{:.0f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title></circle>\n",
                           colour, x, y(one.measured->est), escaped(gain_text(*one.measured)));
        out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n", x, k_height + 14,
                           one.number);
    }
    return out + "</svg></div>\n";
}

std::string attempts_table(const State& state) {
    std::string out =
        "<div class=wide><table><tr><th>N<th>operator<th>lineage<th>verdict<th>gain against the champion, or why"
        "<th>tokens<th>device s<th>commit\n";
    for (const Attempt& one : state.attempts) {
        if (one.number == 0) continue;
        out += fmt::format("<tr><td class=n>{}<td>{}<td class=n>{}<td>{}<td>{}<td class=n>{}<td class=n>{:.1f}<td>{}\n",
                           one.number, to_text(one.op), one.lineage, verdict_word(one),
                           escaped(one.measured ? gain_text(*one.measured) : one.reason),
                           one.tokens ? std::to_string(*one.tokens) : std::string("unknown"), one.device_s,
                           one.commit.substr(0, 7));
    }
    return out + "</table></div>\n";
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
        "| N | operator | lineage | verdict | gain against the champion, or why | commit "
        "|\n|---|---|---|---|---|---|\n";
    for (const Attempt& one : state.attempts) {
        if (one.number == 0) continue;
        out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", one.number, to_text(one.op), one.lineage,
                           verdict_word(one), cell(one.measured ? gain_text(*one.measured) : one.reason),
                           one.commit.substr(0, 7));
    }
    const std::string known = insights(state);
    if (!known.empty()) out += "\n## What is known\n\n" + known;
    return out;
}

std::string report_html(const RunView& view) {
    const State& state = view.state;
    const Attempt& best = state.at(state.best);
    std::string body = fmt::format("<h1>Evolve run {}</h1>\n<dl>\n", escaped(state.run));
    const auto field = [&body](std::string_view name, const std::string& value) {
        body += fmt::format("<div><dt>{}<dd>{}</div>\n", name, escaped(value));
    };
    field("best", best.number == 0
                      ? std::string("the base commit")
                      : fmt::format("attempt {}, {:+.2f} % against the base", best.number, to_percent(best.gain)));
    field("attempts", std::to_string(state.attempts.size() - 1));
    if (state.noise_measured) field("noise of a pair", fmt::format("{:.2f} %", to_percent(state.noise_sd)));
    field("tokens", std::to_string(state.spent.tokens));
    field("device", fmt::format("{:.0f} s", state.spent.device_s));
    field("wall", fmt::format("{:.0f} s", state.spent.wall_s));
    body += "</dl>\n<h2>Tree</h2>\n" + tree_svg(state);
    body += "<h2>Gains against the champion of their time</h2>\n" + gains_svg(state);
    body += "<h2>Attempts</h2>\n" + attempts_table(state);
    return html::document("Evolve run " + state.run, k_style, body);
}

Json report_json(const RunView& view) {
    Json out = status_json(view);
    out["all"] = log_json(view.state);
    return out;
}

}  // namespace gdnctl::loop::evolve
