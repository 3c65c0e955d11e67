// The charts of a run's page, as SVG without scripts. Pure.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "core/for_people.h"
#include "loop/report/run_report.h"
#include "loop/report/wording.h"
#include "render/page.h"
#include "runlog/records/record.h"

namespace gdnctl::loop::report {

// CSS class of an iteration's colour: champion, kept, refused, trouble (infrastructure or environment), agent, none,
// open.
std::string_view colour_of(const loop::IterationView& iteration);

namespace {

using loop::IterationView;
using loop::shown;
using svg::Anchor;

constexpr double k_left = 84;
constexpr double k_wide = 880;
constexpr double k_top_edge = 14;
constexpr double k_high = 260;
constexpr std::size_t k_strip_row = 50;
constexpr std::size_t k_most_bars = 150;

double middle_of(std::vector<double> values) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

struct Axes {
    double low = 0, high = 1;
    int last = 1;  // number of the last iteration

    double x_of(double iteration) const { return k_left + iteration / std::max(1, last) * k_wide; }
    double y_of(double value) const {
        return k_top_edge + (high - std::clamp(value, low, high)) / (high - low) * k_high;
    }
    bool shows(double value) const { return value >= low && value <= high; }
};

// Scaled to the champions and values near them, so that an outlier does not flatten everything else.
Axes axes_of(const Report& report) {
    std::vector<double> values;
    for (const auto* one : report.champions) values.push_back(*one->value);
    Axes axes;
    for (const auto* one : report.of_iteration) {
        if (one != nullptr && one->value) values.push_back(*one->value);
    }
    const double middle = middle_of(values);
    std::vector<double> distances;
    distances.reserve(values.size());
    for (const double value : values) distances.push_back(std::abs(value - middle));
    const double near = std::max(8 * middle_of(distances), 0.1 * std::abs(middle));
    double low = HUGE_VAL;
    double high = -HUGE_VAL;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i >= report.champions.size() && distances[i] > near) continue;
        low = std::min(low, values[i]);
        high = std::max(high, values[i]);
    }
    const double noise = report.noise_pct.value_or(0.2) / 100 * std::max(std::abs(low), std::abs(high));
    const double margin = std::max({(high - low) * 0.08, 2 * noise, std::abs(high) * 1e-6, 1e-12});
    axes.low = low - margin;
    axes.high = high + margin;
    axes.last = std::max(1, report.run.view.iterations.empty() ? 1 : report.run.view.iterations.back().number);
    return axes;
}

std::string value_lines(const Axes& axes) {
    std::string chart;
    const double step = svg::round_step((axes.high - axes.low) / 6);
    for (double value = std::ceil(axes.low / step) * step; value <= axes.high; value += step) {
        const double y = axes.y_of(value);
        chart += svg::line("axis", k_left, y, k_left + k_wide, y) +
                 svg::text(k_left - 6, y + 4, number_for_people(value), Anchor::end);
    }
    return chart;
}

std::string iteration_numbers(const Axes& axes, double y) {
    std::string chart;
    const int step = std::max(1, static_cast<int>(svg::round_step(axes.last / 14.0)));
    for (int i = 0; i <= axes.last; i += step) {
        chart += svg::text(axes.x_of(i), y, fmt::format("{}", i), Anchor::middle);
    }
    return chart;
}

// A champion's line goes from its iteration to that of the next one; a champion of an earlier run starts at the left
// edge.
std::string reigns(const Report& report, const Axes& axes) {
    const auto began = parse_iso8601(report.run.view.started);
    const auto since = [&](const loop::MeasuredView& one) {
        const bool earlier = began && WallTime(std::chrono::seconds(one.timestamp_unix)) < *began;
        if (earlier) return 0;
        // A baseline was measured before the candidate of its iteration.
        const bool before = one.decision == "baseline" || one.decision == "baseline_shift";
        return std::clamp(before ? one.iteration - 1 : one.iteration, 0, axes.last);
    };
    std::string bands;
    std::string steps;
    for (std::size_t i = 0; i < report.champions.size(); ++i) {
        const loop::MeasuredView& one = *report.champions[i];
        const double from = axes.x_of(since(one));
        const double to =
            i + 1 < report.champions.size() ? axes.x_of(since(*report.champions[i + 1])) : k_left + k_wide;
        if (to < from) continue;
        if (report.noise_pct) {
            const double width = *report.noise_pct / 100 * std::abs(*one.value);
            const double top = axes.y_of(*one.value + width);
            bands += svg::rect({"band"}, {from, top, to - from, axes.y_of(*one.value - width) - top});
        }
        steps += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", from, axes.y_of(*one.value), to, axes.y_of(*one.value));
    }
    return bands + fmt::format("<polyline class=reign points=\"{}\"/>\n", steps);
}

std::string linked(int iteration, const std::string& mark) {
    return fmt::format("<a href=\"#i{}\">{}</a>\n", iteration, mark);
}

// "7, Batch the matmuls"
std::string numbered(const IterationView& i) {
    return i.title.empty() ? std::to_string(i.number) : fmt::format("{}, {}", i.number, shown(i.title, 80));
}

std::string point_of(const IterationView& i, const loop::MeasuredView& m, const Axes& axes) {
    const double x = axes.x_of(i.number);
    const double y = axes.y_of(*m.value);
    const std::string title = fmt::format("iteration {}: {} = {}{}{}; {}{}", numbered(i), shown(m.metric, 60),
                                          value_text(m), m.gain ? ", " : "", gain_text(&m), verdict_text(i),
                                          m.suspect ? "; suspect: the base had moved" : "");
    const svg::Mark look{colour_of(i), title};
    std::string mark;
    if (!axes.shows(*m.value)) {  // outside the chart: an arrow at its edge
        const double tip = *m.value > axes.high ? -7 : 7;
        mark = svg::path(look, fmt::format("M{:.1f} {:.1f} l-5 {} h10 z", x, y + (tip < 0 ? 1 : -1), -tip));
    } else if (i.promoted) {
        mark = svg::path(look, fmt::format("M{:.1f} {:.1f} l6 6 -6 6 -6 -6 z", x, y - 6));
    } else {
        mark = svg::circle(look, x, y, axes.last > 300 ? 2.4 : 4);
    }
    return linked(i.number, mark);
}

std::string open_svg(double height, std::string_view label) {
    return svg::open(k_left + k_wide + 16, height, label, true);
}

struct CostBar {
    int first = 0, last = 0;
    double agent = 0, device = 0, rest = 0, tokens = 0;  // hours; millions
    double time() const { return agent + device + rest; }
};

std::vector<CostBar> cost_bars(const loop::RunView& view) {
    constexpr double k_ms_an_hour = 3.6e6;
    const std::size_t share = (view.iterations.size() + k_most_bars - 1) / k_most_bars;
    std::vector<CostBar> bars;
    for (std::size_t i = 0; i < view.iterations.size(); ++i) {
        const IterationView& one = view.iterations[i];
        if (i % share == 0) {
            bars.emplace_back();
            bars.back().first = one.number;
        }
        CostBar& bar = bars.back();
        bar.last = one.number;
        bar.agent += static_cast<double>(one.agent_ms) / k_ms_an_hour;
        bar.device += static_cast<double>(one.tpu_ms) / k_ms_an_hour;
        const auto rest = std::max<std::int64_t>(0, one.wall_ms - one.agent_ms - one.tpu_ms);
        bar.rest += static_cast<double>(rest) / k_ms_an_hour;
        bar.tokens += static_cast<double>(one.tokens.value_or(0)) / 1e6;
    }
    return bars;
}

std::string hours_text(double hours) { return duration_text(static_cast<std::int64_t>(hours * 3.6e6)); }

// One stacked bar; `scale`: chart units per hour.
std::string stacked(const CostBar& bar, double x, double width, double bottom, double scale) {
    const std::string which = bar.first == bar.last ? fmt::format("iteration {}", bar.first)
                                                    : fmt::format("iterations {} to {}", bar.first, bar.last);
    std::string chart =
        fmt::format("<g><title>{}: agent {}, device {}, other {}, {:.2f} million tokens</title>\n", which,
                    hours_text(bar.agent), hours_text(bar.device), hours_text(bar.rest), bar.tokens);
    double y = bottom;
    for (const auto& [part, name] : {std::pair{bar.agent, "cagent"}, {bar.device, "cdevice"}, {bar.rest, "crest"}}) {
        const double height = part * scale;
        if (height < 0.05) continue;
        y -= height;
        chart += svg::rect({name}, {x, y, width, height});
    }
    return chart + "</g>\n";
}

}  // namespace

std::string_view colour_of(const IterationView& i) {
    if (!i.ended) return "open";
    if (i.promoted) return "champion";
    if (i.outcome == "accepted") return "kept";
    if (i.outcome == "infra" || i.outcome == "environment") return "trouble";
    if (i.outcome == "agent-error" || i.outcome == "timeout" || i.outcome == "error") return "agent";
    if (i.outcome == "no-op") return "none";
    return "rejected";
}

// The metric over the iterations: the measured values, the champion at each time as steps, and around it the noise
// band, in which equal code would fall. "" if nothing was measured.
std::string metric_chart(const Report& report) {
    const bool any = std::any_of(report.of_iteration.begin(), report.of_iteration.end(),
                                 [](const auto* m) { return m != nullptr && m->value; });
    if (!any && report.champions.empty()) return {};
    const Axes axes = axes_of(report);
    std::string chart = open_svg(k_top_edge + k_high + 26, "the metric over the iterations");
    chart += value_lines(axes) + iteration_numbers(axes, k_top_edge + k_high + 18) + reigns(report, axes);
    for (std::size_t i = 0; i < report.of_iteration.size(); ++i) {
        const auto* m = report.of_iteration[i];
        if (m != nullptr && m->value) chart += point_of(report.run.view.iterations[i], *m, axes);
    }
    return chart.append(svg::k_close);
}

// One square per iteration, in order, each linked to it.
std::string outcome_strip(const Report& report) {
    const auto& all = report.run.view.iterations;
    constexpr double k_cell = 17;
    const std::size_t rows = (all.size() + k_strip_row - 1) / k_strip_row;
    std::string chart = open_svg(static_cast<double>(rows) * (k_cell + 3) + 4, "the outcomes in order");
    for (std::size_t n = 0; n < all.size(); ++n) {
        const std::size_t row = n / k_strip_row;
        const double y = static_cast<double>(row) * (k_cell + 3) + 2;
        if (n % k_strip_row == 0) {
            chart += svg::text(k_left - 8, y + 12.5, fmt::format("{}", all[n].number), Anchor::end);
        }
        const std::string title = fmt::format("iteration {}: {}", numbered(all[n]), verdict_text(all[n]));
        const double x = k_left + static_cast<double>(n % k_strip_row) * (k_cell + 0.6);
        chart += linked(all[n].number, svg::rect({colour_of(all[n]), title}, {x, y, k_cell - 2, k_cell - 2}));
    }
    return chart.append(svg::k_close);
}

// Time of the agent, the device and the rest, and tokens, per iteration. Above 150 iterations, neighbours share a bar.
std::string cost_chart(const Report& report) {
    const auto bars = cost_bars(report.run.view);
    if (bars.empty()) return {};
    constexpr double k_bar_space = 120;
    double most = 0;
    for (const CostBar& bar : bars) most = std::max(most, bar.time());
    if (most <= 0) return {};
    const double bottom = k_top_edge + k_bar_space;
    const double place = std::min(k_wide / static_cast<double>(bars.size()), 40.0);
    std::string chart = open_svg(bottom + 24, "time by iteration");
    chart += svg::text(k_left - 6, k_top_edge + 4, hours_text(most), Anchor::end) +
             svg::text(k_left - 6, bottom, "0", Anchor::end) +
             svg::line("axis", k_left, bottom, k_left + k_wide, bottom);
    const std::size_t named = std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(46 / place)));
    for (std::size_t i = 0; i < bars.size(); ++i) {
        const double x = k_left + static_cast<double>(i) * place;
        chart += stacked(bars[i], x, std::max(place - 1.5, 1.0), bottom, k_bar_space / most);
        if (i % named != 0) continue;
        chart += svg::text(x, bottom + 16, fmt::format("{}", bars[i].first));
    }
    return chart.append(svg::k_close);
}

std::string failure_bars(const Report& report) {
    if (report.failures.empty()) return {};
    const double most = report.failures.front().count;
    constexpr double k_row = 22;
    constexpr double k_names = 190;
    std::string chart = open_svg(static_cast<double>(report.failures.size()) * k_row + 6,
                                 "iterations that were not accepted, by result");
    double y = 4;
    for (const FailureClass& one : report.failures) {
        IterationView sample;
        sample.ended = true;
        sample.outcome = one.outcome;
        const double width = one.count / most * (k_left + k_wide - k_names - 60);
        chart += svg::text(k_names - 8, y + 12, shown(runlog::outcome_phrase(one.outcome), 30), Anchor::end) +
                 svg::rect({colour_of(sample)}, {k_names, y, width, 15}) +
                 svg::text(k_names + width + 6, y + 12, fmt::format("{}", one.count));
        y += k_row;
    }
    return chart.append(svg::k_close);
}

namespace {

using html::escaped;

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
