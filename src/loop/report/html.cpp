#include <algorithm>

#include <fmt/format.h>

#include "core/for_people.h"
#include "loop/report/charts.h"
#include "loop/report/verdict_words.h"
#include "render/page.h"
#include "runlog/records/words.h"

namespace gdnctl::loop::report {

namespace {

using html::escaped;
using loop::IterationView;

const html::Look& look() {
    static const html::Look k_look{{{"champion", "#1d6fd1", "#62a8ff"},
                                    {"kept", "#55a868", "#5cb874"},
                                    {"rejected", "#c44e52", "#e8696e"},
                                    {"trouble", "#e0a63a", "#d9a441"},
                                    {"agent", "#8b6fb8", "#a98bd8"},
                                    {"none", "#b4bcc5", "#59636e"},
                                    {"band", "#1d6fd12b", "#62a8ff33"},
                                    {"cagent", "#8b6fb8", "#a98bd8"},
                                    {"cdevice", "#e0a63a", "#d9a441"},
                                    {"crest", "#b4bcc5", "#59636e"}},
                                   R"css(
svg rect { rx: 2px; } svg .reign { fill: none; stroke: var(--champion); stroke-width: 1.6; }
.open { fill: var(--ground); stroke: var(--soft); } i.open { border: 1px solid var(--soft); }
summary i { display: inline-block; width: .8em; height: .8em; margin-right: .45em; border-radius: 2px; }
details { border-bottom: 1px solid var(--line); padding: .25rem 0; } summary { cursor: pointer; }
details:target { background: var(--code); } details > div { padding: .4rem 0 .8rem 1.4rem; }
b.fail { color: var(--rejected); } b.pass { color: var(--kept); }
)css"};
    return k_look;
}

std::string champion_line(const Report& report) {
    if (!report.measured || !report.measured->champion || !report.measured->champion->value) return {};
    const auto& champion = *report.measured->champion;
    return fmt::format("{} ({}, {})", value_text(champion), short_commit(champion.commit),
                       loop::shown(champion.metric, 60));
}

std::string head_part(const Report& report) {
    const auto& view = report.run.view;
    return fmt::format("<h1>Run {}</h1>\n<p class=soft>{}</p>\n", escaped(loop::shown(view.run, 60)),
                       escaped(standing(report.run))) +
           html::facts({{"iterations", fmt::format("{} of {}", view.ended, view.total)},
                        {"promoted", fmt::format("{}", view.promotions)},
                        {"counted failures", fmt::format("{}", view.failures)},
                        {"champion", champion_line(report)},
                        {"time", duration_text(view.wall_ms)},
                        {"agent", duration_text(view.agent_ms)},
                        {"device", duration_text(view.tpu_ms)},
                        {"tokens", loop::grouped(view.tokens)}});
}

std::string charts_part(const Report& report) {
    std::string html;
    if (const std::string chart = metric_chart(report); !chart.empty()) {
        html += fmt::format("<h2>{} over the iterations{}</h2>\n", escaped(loop::shown(report.metric, 80)),
                            report.better.empty() ? "" : ": " + report.better + " is better") +
                chart;
        html +=
            html::legend({{"champion", "promoted"}, {"kept", "accepted"}, {"rejected", "rejected"}, {"band", "noise"}});
        html += report.noise_pct
                    ? fmt::format(
                          "<p class=soft>The line is the champion at that time. The band around it is {} %, the "
                          "difference between measurements of identical code (one standard deviation).</p>\n",
                          number_for_people(*report.noise_pct, 3))
                    : "<p class=soft>The line is the champion at that time. The noise is not known: no pairs were "
                      "measured.</p>\n";
    }
    if (report.run.view.iterations.empty()) return html + "<p>No iteration has started yet.</p>\n";
    html += html::section("Outcomes over time", outcome_strip(report));
    html += html::legend({{"champion", "promoted"},
                          {"kept", "accepted"},
                          {"rejected", "rejected"},
                          {"trouble", "parked"},
                          {"agent", "failed"},
                          {"none", "no-op"},
                          {"open", "under way"}});
    if (const std::string chart = cost_chart(report); !chart.empty()) {
        html += html::section("Cost", chart);
        html += html::legend({{"cagent", "agent"}, {"cdevice", "device"}, {"crest", "other"}});
    }
    return html + html::section("What was not accepted", failure_bars(report));
}

std::string signs_table(const Report& report) {
    html::Table table("result|times@n|most often");
    for (const FailureClass& one : report.failures) {
        std::vector<std::pair<int, std::string>> signs;
        for (const auto& [sign, count] : one.signs) signs.emplace_back(count, sign);
        std::stable_sort(signs.begin(), signs.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        if (signs.size() > 3) signs.resize(3);
        for (const auto& [count, sign] : signs) {
            if (sign.empty()) continue;
            table.row({escaped(loop::shown(runlog::outcome_phrase(one.outcome), 40)), fmt::format("{}", count),
                       escaped(sign)});
        }
    }
    return table.html();
}

std::string memory_sections(const Report& report) {
    std::string html;
    const auto dead = loop::dead_ideas(report.ideas);
    if (!dead.empty()) html += "<h2>Ideas that were rejected repeatedly</h2>\n<ul>\n";
    for (const auto& one : dead) {
        html += fmt::format("<li>{}: {} times; {}\n", escaped(loop::shown(loop::idea_id(one.idea), 120)), one.failed,
                            escaped(loop::shown(one.last_reason, 300)));
    }
    if (!dead.empty()) html += "</ul>\n";
    html::Table slots("slot||tries@n|accepted@n|rejected@n|");
    for (const auto& one : report.slots) {
        slots.row({escaped(loop::shown(one.slot.slot, 30)), escaped(loop::shown(one.slot.title, 100)),
                   fmt::format("{}", one.tries), fmt::format("{}", one.won), fmt::format("{}", one.failed),
                   one.open() ? "open" : ""});
    }
    html::Table flakes("test|failed@n|passed alone@n|max abs@n");
    for (const auto& one : report.flakes) {
        flakes.row({escaped(loop::shown(one.test, 200)), fmt::format("{}", one.seen),
                    fmt::format("{}", one.passed_alone), one.largest ? number_for_people(*one.largest) : ""});
    }
    return html + slots.section("Slots") + flakes.section("Flaky tests");
}

void add_gates(const std::vector<loop::GateView>& gates, html::Table& table) {
    for (const auto& gate : gates) {
        table.row({"", escaped(loop::shown(gate.result, 10)), escaped("gate " + loop::shown(gate.id, 60)),
                   escaped(gate_text(gate))});
    }
}

html::Table stages_table() { return html::Table("stage|verdict|@soft|why"); }

std::string stages_part(const IterationView& i) {
    html::Table table = stages_table();
    for (const auto& stage : i.stages) {
        const std::string_view colour = stage.verdict == "fail" ? "fail" : "pass";
        table.row({escaped(loop::shown(stage.name, 60)),
                   fmt::format("<b class={}>{}</b>", colour, escaped(loop::shown(stage.verdict, 10))),
                   stage.wall_ms > 0 ? duration_text(stage.wall_ms) : "", escaped(loop::shown(stage.reason))});
        add_gates(stage.gates, table);
        for (const auto& [name, value] : stage.facts) {
            table.row({"", "", escaped(loop::shown(name, 60)), escaped(loop::shown(value))});
        }
    }
    return table.html();
}

std::string measured_part(const loop::MeasuredView* m, const IterationView& i) {
    if (m == nullptr) return {};
    std::string html = "<p>";
    if (m->value) html += fmt::format("{} = {}", escaped(loop::shown(m->metric, 80)), escaped(value_text(*m)));
    if (m->gain) html += "; " + escaped(runlog::whole_gain_text(*m->gain));
    if (m->suspect) html += "; <b class=fail>suspect</b>: the base had moved";
    html += fmt::format("; {}</p>\n", escaped(loop::shown(runlog::decision_words(m->decision), 60)));
    const bool told = std::any_of(i.stages.begin(), i.stages.end(), [](const auto& s) { return !s.gates.empty(); });
    if (told || m->gates.empty()) return html;
    html::Table table = stages_table();
    add_gates(m->gates, table);
    return html + table.html();
}

std::string iteration_part(const Report& report, std::size_t at) {
    const IterationView& i = report.run.view.iterations[at];
    const auto* m = report.of_iteration[at];
    const std::string title = i.title.empty() ? "" : loop::shown(i.title, 100) + ": ";
    std::string html = fmt::format("<details id=i{0}><summary><i class={1}></i>{0}: {2}", i.number, colour_of(i),
                                   escaped(title + verdict_text(i)));
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
    html += measured_part(m, i) + stages_part(i);
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
    return html::document(fmt::format("Run {}", loop::shown(report.run.view.run, 60)), look(), body);
}

}  // namespace gdnctl::loop::report
