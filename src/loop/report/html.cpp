#include <algorithm>

#include <fmt/format.h>

#include "core/for_people.h"
#include "loop/report/charts.h"
#include "loop/report/verdict_words.h"
#include "render/html_page.h"

namespace gdnctl::loop::report {

namespace {

using html::escaped;
using loop::IterationView;

constexpr std::string_view k_page_style = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #56606b; --line: #d5dae0; --code: #f2f4f7;
  --champion: #1d6fd1; --kept: #55a868; --refused: #c44e52; --trouble: #e0a63a; --agent: #8b6fb8; --none: #b4bcc5;
  --band: #1d6fd12b; --cagent: #8b6fb8; --cdevice: #e0a63a; --crest: #b4bcc5; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --ink: #e4e8ec; --soft: #a3adb8; --line: #333a43;
  --code: #1f242a; --champion: #62a8ff; --kept: #5cb874; --refused: #e8696e; --trouble: #d9a441; --agent: #a98bd8;
  --none: #59636e; --band: #62a8ff33; --cagent: #a98bd8; --cdevice: #d9a441; --crest: #59636e; } }
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 64rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .3rem 0; } .wide { overflow-x: auto; } .soft { color: var(--soft); }
table { border-collapse: collapse; } td, th { padding: .25rem 1rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); } th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dl { display: flex; flex-wrap: wrap; gap: .4rem 2.2rem; margin: 1rem 0; } dl div { min-width: 6rem; }
dt { color: var(--soft); font-size: .85em; } dd { margin: 0; font-size: 1.15em; font-variant-numeric: tabular-nums; }
svg { display: block; max-width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--line); stroke-width: 1; } .band { fill: var(--band); }
.reign { fill: none; stroke: var(--champion); stroke-width: 1.6; }
.champion { fill: var(--champion); } .kept { fill: var(--kept); } .refused { fill: var(--refused); }
.trouble { fill: var(--trouble); } .agent { fill: var(--agent); } .none { fill: var(--none); }
.open { fill: var(--ground); stroke: var(--soft); } .cagent { fill: var(--cagent); } .cdevice { fill: var(--cdevice); }
.crest { fill: var(--crest); }
.legend { color: var(--soft); font-size: .9em; } .legend span { margin-right: 1rem; white-space: nowrap; }
.legend i, summary i { display: inline-block; width: .8em; height: .8em; margin-right: .45em; border-radius: 2px; }
i.champion { background: var(--champion); } i.kept { background: var(--kept); } i.refused { background: var(--refused); }
i.trouble { background: var(--trouble); } i.agent { background: var(--agent); } i.none { background: var(--none); }
i.open { border: 1px solid var(--soft); } i.cagent { background: var(--cagent); } i.cdevice { background: var(--cdevice); }
i.crest { background: var(--crest); } i.band { background: var(--band); }
details { border-bottom: 1px solid var(--line); padding: .25rem 0; } summary { cursor: pointer; }
details:target { background: var(--code); } details > div { padding: .4rem 0 .8rem 1.4rem; }
b.fail { color: var(--refused); } b.pass { color: var(--kept); } code { font-size: .92em; }
)css";

std::string field(std::string_view name, const std::string& value) {
    return value.empty() ? std::string() : fmt::format("<div><dt>{}<dd>{}</div>\n", name, escaped(value));
}

std::string champion_line(const Report& report) {
    if (!report.measured || !report.measured->champion || !report.measured->champion->value) return {};
    const auto& champion = *report.measured->champion;
    return fmt::format("{} ({}, {})", value_text(champion), short_commit(champion.commit),
                       loop::shown(champion.metric, 60));
}

std::string head_part(const Report& report) {
    const auto& view = report.run.view;
    std::string html = fmt::format("<h1>Run {}</h1>\n<p class=soft>{}</p>\n<dl>\n", escaped(loop::shown(view.run, 60)),
                                   escaped(standing(report.run)));
    html += field("iterations", fmt::format("{} of {}", view.ended, view.total));
    html += field("promoted", fmt::format("{}", view.promotions));
    html += field("counted failures", fmt::format("{}", view.failures));
    html += field("champion", champion_line(report));
    html += field("time", duration_text(view.wall_ms));
    html += field("agent", duration_text(view.agent_ms));
    html += field("device", duration_text(view.tpu_ms));
    html += field("tokens", loop::grouped(view.tokens));
    return html + "</dl>\n";
}

std::string legend(std::initializer_list<std::pair<std::string_view, std::string_view>> items) {
    std::string html = "<p class=legend>";
    for (const auto& [name, text] : items) html += fmt::format("<span><i class={}></i>{}</span> ", name, text);
    return html + "</p>\n";
}

std::string charts_part(const Report& report) {
    std::string html;
    if (const std::string chart = metric_chart(report); !chart.empty()) {
        html += fmt::format("<h2>{} over the iterations{}</h2>\n", escaped(loop::shown(report.metric, 80)),
                            report.better.empty() ? "" : ": " + report.better + " is better") +
                chart;
        html += legend({{"champion", "new champion"}, {"kept", "kept"}, {"refused", "refused"}, {"band", "noise"}});
        html += report.noise_pct
                    ? fmt::format(
                          "<p class=soft>The line is the champion of the time; the band around it is "
                          "{} %, by which equal code differs from one measurement to the next (one "
                          "standard deviation).</p>\n",
                          number_for_people(*report.noise_pct, 3))
                    : "<p class=soft>The line is the champion of the time. The noise is not known: no pairs "
                      "were measured.</p>\n";
    }
    if (report.run.view.iterations.empty()) return html + "<p>No iteration has started yet.</p>\n";
    html += "<h2>Outcomes in time</h2>\n" + outcome_strip(report);
    html += legend({{"champion", "new champion"},
                    {"kept", "kept"},
                    {"refused", "refused"},
                    {"trouble", "infrastructure"},
                    {"agent", "agent or loop"},
                    {"none", "nothing to judge"},
                    {"open", "under way"}});
    if (const std::string chart = cost_chart(report); !chart.empty()) {
        html += "<h2>Cost</h2>\n" + chart;
        html += legend({{"cagent", "agent"}, {"cdevice", "device"}, {"crest", "other"}});
    }
    if (!report.failures.empty()) html += "<h2>What was not kept</h2>\n" + failure_bars(report);
    return html;
}

std::string signs_table(const Report& report) {
    std::string rows;
    for (const FailureClass& one : report.failures) {
        std::vector<std::pair<int, std::string>> signs;
        for (const auto& [sign, count] : one.signs) signs.emplace_back(count, sign);
        std::stable_sort(signs.begin(), signs.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        if (signs.size() > 3) signs.resize(3);
        for (const auto& [count, sign] : signs) {
            if (sign.empty()) continue;
            rows += fmt::format("<tr><td>{}<td class=n>{}<td>{}</tr>\n", escaped(loop::shown(one.outcome, 24)), count,
                                escaped(sign));
        }
    }
    if (rows.empty()) return {};
    return "<div class=wide><table><tr><th>class<th class=n>times<th>most often</tr>\n" + rows + "</table></div>\n";
}

std::string memory_sections(const Report& report) {
    std::string html;
    const auto dead = loop::dead_ideas(report.ideas);
    if (!dead.empty()) html += "<h2>Ideas that were refused again and again</h2>\n<ul>\n";
    for (const auto& one : dead) {
        html += fmt::format("<li>{}: {} times; {}\n", escaped(loop::shown(loop::idea_id(one.idea), 120)), one.failed,
                            escaped(loop::shown(one.last_reason, 300)));
    }
    if (!dead.empty()) html += "</ul>\n";
    if (!report.slots.empty()) {
        html +=
            "<h2>Slots</h2>\n<div class=wide><table><tr><th>slot<th><th class=n>tries<th class=n>won<th "
            "class=n>refused<th></tr>\n";
        for (const auto& one : report.slots) {
            html += fmt::format("<tr><td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td>{}</tr>\n",
                                escaped(loop::shown(one.slot.slot, 30)), escaped(loop::shown(one.slot.title, 100)),
                                one.tries, one.won, one.failed, one.open() ? "open" : "");
        }
        html += "</table></div>\n";
    }
    if (!report.flakes.empty()) {
        html +=
            "<h2>Flaky tests</h2>\n<div class=wide><table><tr><th>test<th class=n>failed<th class=n>passed alone<th "
            "class=n>max abs</tr>\n";
        for (const auto& one : report.flakes) {
            html += fmt::format("<tr><td>{}<td class=n>{}<td class=n>{}<td class=n>{}</tr>\n",
                                escaped(loop::shown(one.test, 200)), one.seen, one.passed_alone,
                                one.largest ? number_for_people(*one.largest) : "");
        }
        html += "</table></div>\n";
    }
    return html;
}

std::string gates_rows(const std::vector<loop::GateView>& gates) {
    std::string rows;
    for (const auto& gate : gates) {
        const std::string result = loop::shown(gate.result, 10);
        rows += fmt::format("<tr><td><td>{}<td>gate {}<td>{}</tr>\n", escaped(result),
                            escaped(loop::shown(gate.id, 60)), escaped(gate_text(gate)));
    }
    return rows;
}

std::string stages_table(const IterationView& i) {
    if (i.stages.empty()) return {};
    std::string html = "<div class=wide><table><tr><th>stage<th>verdict<th><th>why</tr>\n";
    for (const auto& stage : i.stages) {
        const std::string_view look = stage.verdict == "fail" ? "fail" : "pass";
        html += fmt::format("<tr><td>{}<td><b class={}>{}</b><td class=soft>{}<td>{}</tr>\n",
                            escaped(loop::shown(stage.name, 60)), look, escaped(loop::shown(stage.verdict, 10)),
                            stage.wall_ms > 0 ? duration_text(stage.wall_ms) : "", escaped(loop::shown(stage.reason)));
        html += gates_rows(stage.gates);
        for (const auto& [name, value] : stage.facts) {
            html += fmt::format("<tr><td><td><td class=soft>{}<td>{}</tr>\n", escaped(loop::shown(name, 60)),
                                escaped(loop::shown(value)));
        }
    }
    return html + "</table></div>\n";
}

std::string measured_part(const loop::MeasuredView* m, const IterationView& i) {
    if (m == nullptr) return {};
    std::string html = "<p>";
    if (m->value) html += fmt::format("{} = {}", escaped(loop::shown(m->metric, 80)), escaped(value_text(*m)));
    if (m->gain) html += "; " + escaped(runlog::whole_gain_text(*m->gain));
    if (m->suspect) html += "; <b class=fail>suspect</b>: the base had moved";
    html += fmt::format("; {}</p>\n", escaped(loop::shown(m->decision, 60)));
    const bool told = std::any_of(i.stages.begin(), i.stages.end(), [](const auto& s) { return !s.gates.empty(); });
    if (told || m->gates.empty()) return html;
    return html + "<div class=wide><table>" + gates_rows(m->gates) + "</table></div>\n";
}

std::string iteration_part(const Report& report, std::size_t at) {
    const IterationView& i = report.run.view.iterations[at];
    const auto* m = report.of_iteration[at];
    std::string html = fmt::format("<details id=i{0}><summary><i class={1}></i>{0}: {2}", i.number, colour_of(i),
                                   escaped(verdict_text(i)));
    if (m != nullptr && m->value) html += ", " + escaped(value_text(*m));
    if (const std::string gain = gain_text(m); !gain.empty()) html += ", " + escaped(gain);
    html += fmt::format("</summary><div>\n<p>{}</p>\n", escaped(why_text(i)));
    const auto files = report.files.find(i.number);
    const Explained explained{i, report.run.view.run, report.run.log_dir, m, nullptr, {}};
    html += fmt::format(
        "<p class=soft>base <code>{}</code>, candidate <code>{}</code>{}{}; {}, agent {}, device {}, {} "
        "tokens, {} attempt{}</p>\n",
        escaped(short_commit(i.base)), escaped(or_dash(short_commit(i.head))),
        kept_at_text(explained).empty() ? "" : " at ", escaped(kept_at_text(explained)), duration_text(i.wall_ms),
        duration_text(i.agent_ms), duration_text(i.tpu_ms), loop::grouped(i.tokens), i.attempts.size(),
        i.attempts.size() == 1 ? "" : "s");
    html += measured_part(m, i) + stages_table(i);
    if (files != report.files.end()) {
        html += "<p class=soft>";
        for (const auto& name : files->second) html += fmt::format("<code>{}</code> ", escaped(loop::shown(name)));
        html += "</p>\n";
    }
    return html + "</div></details>\n";
}

}  // namespace

std::string report_html(const Report& report) {
    std::string body = head_part(report) + charts_part(report) + signs_table(report) + memory_sections(report);
    if (!report.run.view.iterations.empty()) body += "<h2>Every iteration</h2>\n";
    for (std::size_t at = 0; at < report.run.view.iterations.size(); ++at) body += iteration_part(report, at);
    return html::document(fmt::format("Run {}", loop::shown(report.run.view.run, 60)), k_page_style, body);
}

}  // namespace gdnctl::loop::report
