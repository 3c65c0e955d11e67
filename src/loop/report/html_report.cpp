// A run's report as a page: gdnctl.loop-report/1 with its words for people and its charts. Pure.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/redact.h"
#include "loop/report/run_report.h"
#include "loop/report/wording.h"
#include "render/chart.h"
#include "render/page.h"
#include "runlog/records/record.h"

namespace gdnctl::loop::report {

namespace {

constexpr std::string_view k_page = R"html(<h1>Run {{run|60}}</h1>
<p>{{page/result}}</p>
<p class=soft>{{page/standing}}</p>
<dl>
{{?page/target}}<div><dt>target<dd>{{page/target}}</div>
{{/}}{{?page/repository}}<div><dt>repository<dd>{{page/repository}}</div>
{{/}}{{?page/agent}}<div><dt>agent<dd>{{page/agent}}</div>
{{/}}{{?page/dates}}<div><dt>dates<dd>{{page/dates}}</div>
{{/}}<div><dt>iterations<dd>{{iterations_ended}} of {{iterations_total}}</div>
<div><dt>promoted<dd>{{promotions}}</div>
{{?page/failures}}<div><dt>counted failures<dd>{{page/failures}}</div>
{{/}}{{?page/champion}}<div><dt>champion<dd>{{page/champion}}</div>
{{/}}{{#cost}}<div><dt>time<dd>{{wall_ms|duration}}</div>
{{?agent_ms}}<div><dt>agent time<dd>{{agent_ms|duration}}</div>
{{/}}{{?tpu_ms}}<div><dt>device time<dd>{{tpu_ms|duration}}</div>
{{/}}{{?tokens}}<div><dt>tokens<dd>{{tokens|grouped}}</div>
{{/}}{{/}}</dl>
{{?page/metric_chart}}<h2>{{metric|80}} over the iterations{{?better}}: {{better}} is better{{/}}</h2>
{{&page/metric_chart}}<p class=legend><span><i class=best></i>promoted</span> <span><i class=kept></i>accepted</span>
<span><i class=rejected></i>rejected</span> <span>× not measured</span> <span><i class=band></i>noise</span></p>
<p class=soft>The line is the champion at that time. {{?noise_pct}}The band around it is {{noise_pct|.3g}} %, the difference
between measurements of identical code (one standard deviation).{{/}}{{^noise_pct}}The noise is not known: no pairs were
measured.{{/}}</p>
{{/}}{{^iterations}}<p>No iteration has started yet.</p>
{{/}}{{?iterations}}<h2>Outcomes over time</h2>
{{&page/outcome_chart}}<p class=legend><span><i class=best></i>promoted</span> <span><i class=kept></i>accepted</span>
<span><i class=rejected></i>rejected</span> <span><i class=trouble></i>parked</span>
<span><i class=agent></i>failed</span> <span><i class=none></i>no-op</span> <span><i class=open></i>under way</span></p>
{{/}}{{?page/cost_chart}}<h2>Cost</h2>
{{&page/cost_chart}}<p class=legend><span><i class=agent></i>agent</span> {{#cost}}{{?tpu_ms}}<span><i class=trouble></i>device</span>
{{/}}{{/}}<span><i class=none></i>other</span></p>
{{/}}{{?failures}}<h2>What was not accepted</h2>
{{&page/failure_chart}}{{/}}{{?page/signs}}<div class=wide><table><tr><th>result<th class=n>times<th>most often</tr>
{{#page/signs}}<tr><td>{{result|40}}<td class=n>{{count}}<td>{{sign}}</tr>
{{/}}</table></div>
{{/}}{{?dead_ideas}}<h2>Ideas that were rejected repeatedly</h2>
<ul>
{{#dead_ideas}}<li>{{id|120}}: {{refused}} times; {{reason|300}}
{{/}}</ul>
{{/}}{{?slots}}<h2>Slots</h2>
<div class=wide><table><tr><th>slot<th><th class=n>tries<th class=n>accepted<th class=n>rejected<th></tr>
{{#slots}}<tr><td>{{slot|30}}<td>{{title|100}}<td class=n>{{tries}}<td class=n>{{won}}<td class=n>{{refused}}
<td>{{?open}}open{{/}}</tr>
{{/}}</table></div>
{{/}}{{?flakes}}<h2>Flaky tests</h2>
<div class=wide><table><tr><th>test<th class=n>failed<th class=n>passed alone<th class=n>max abs</tr>
{{#flakes}}<tr><td>{{test|200}}<td class=n>{{seen}}<td class=n>{{passed_alone}}<td class=n>{{max_abs|people}}</tr>
{{/}}</table></div>
{{/}}{{?iterations}}<h2>Every iteration</h2>
{{/}}{{#iterations}}<details id=i{{iteration}}><summary><i class={{words/colour}}></i>{{iteration}}:
{{?title}}{{title|100}}: {{/}}{{words/result}}{{?words/value}}, {{words/value}}{{/}}{{?words/gain}}, {{words/gain}}{{/}}</summary>
<div>
<p>{{words/why}}</p>
<p class=soft>base <code>{{words/base}}</code>, candidate <code>{{words/head}}</code>{{?kept_at}} at {{kept_at}}{{/}};
{{words/cost}}, {{words/attempts}}</p>
{{#measured}}<p>{{metric|80}} = {{words/value}}{{?words/whole_gain}}; {{words/whole_gain}}{{/}}{{?suspect}};
<b class=fail>suspect</b>: the base had moved{{/}}; {{words/decision}}</p>
{{/}}{{?words/has_table}}<div class=wide><table><tr><th>stage<th>verdict<th class=n>time<th>why</tr>
{{#stages}}<tr><td>{{name|60}}<td>{{?bold}}<b class={{bold}}>{{verdict|10}}</b>{{/}}{{^bold}}{{verdict|10}}{{/}}<td class="n soft">{{?wall_ms}}{{wall_ms|duration}}{{/}}
<td>{{reason}}</tr>
{{#gates}}<tr><td class=soft>gate {{id|60}}<td>{{result|10}}<td><td>{{?relation}}{{value|people}} {{relation}} {{limit|people}}{{?words}}, {{/}}{{/}}{{words}}</tr>
{{/}}{{*facts}}<tr><td class=soft colspan=3>{{@}}<td>{{.}}</tr>
{{/}}{{/}}{{#words/gates}}<tr><td class=soft>gate {{id|60}}<td>{{result|10}}<td><td>{{?relation}}{{value|people}} {{relation}} {{limit|people}}{{?words}}, {{/}}{{/}}{{words}}</tr>
{{/}}</table></div>
{{/}}{{?files}}<p class=soft>{{#files}}<code>{{.}}</code> {{/}}</p>
{{/}}</div></details>
{{/}})html";

using loop::IterationView;
using loop::shown;

double middle_of(std::vector<double> values) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

// Scaled to the champions and values near them, so that an outlier does not flatten everything else.
svg::Axis value_axis(const Report& report) {
    std::vector<double> values;
    for (const auto* one : report.champions) values.push_back(*one->value);
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
    return {low - margin, high + margin};
}

// CSS class of an iteration's colour.
std::string_view colour_of(bool ended, bool promoted, std::string_view outcome) {
    if (!ended) return "open";
    if (promoted) return "best";
    if (outcome == "accepted") return "kept";
    if (outcome == "infra" || outcome == "environment") return "trouble";
    if (outcome == "agent-error" || outcome == "timeout" || outcome == "error") return "agent";
    return outcome == "no-op" ? "none" : "rejected";
}

std::string_view colour_of(const IterationView& i) { return colour_of(i.ended, i.promoted, i.outcome); }

// A champion's line goes from its iteration to that of the next one; a champion of an earlier run starts at the left
// edge.
void add_champions(const Report& report, int last, svg::Plot& plot) {
    const auto began = parse_iso8601(report.run.view.started);
    const auto since = [&](const loop::MeasuredView& one) {
        const bool earlier = began && WallTime(std::chrono::seconds(one.timestamp_unix)) < *began;
        if (earlier) return 0;
        // A baseline was measured before the candidate of its iteration.
        const bool before = one.decision == "baseline" || one.decision == "baseline_shift";
        return std::clamp(before ? one.iteration - 1 : one.iteration, 0, last);
    };
    std::vector<std::pair<double, double>> steps;
    for (std::size_t i = 0; i < report.champions.size(); ++i) {
        const double value = *report.champions[i]->value;
        const int from = since(*report.champions[i]);
        const int to = i + 1 < report.champions.size() ? since(*report.champions[i + 1]) : last;
        if (to < from) continue;
        const double noise = report.noise_pct.value_or(0) / 100 * std::abs(value);
        if (report.noise_pct) plot.area({"band"}, from, to, value - noise, value + noise);
        steps.insert(steps.end(), {{from, value}, {to, value}});
    }
    plot.polyline("best", steps);
}

// "7, Batch the matmuls"
std::string numbered(const IterationView& i) {
    return i.title.empty() ? std::to_string(i.number) : fmt::format("{}, {}", i.number, shown(i.title, 80));
}

std::string link_to(int iteration) { return fmt::format("i{}", iteration); }

// The metric over the iterations: the measured values, the champion at each time as steps, and around it the noise
// band, in which equal code would fall. "" if nothing was measured.
std::string metric_chart(const Report& report) {
    const bool any = std::any_of(report.of_iteration.begin(), report.of_iteration.end(),
                                 [](const auto* m) { return m != nullptr && m->value; });
    if (!any && report.champions.empty()) return {};
    const auto& all = report.run.view.iterations;
    const int last = std::max(1, all.empty() ? 1 : all.back().number);
    const svg::Axis values = value_axis(report);
    svg::Plot plot("the metric over the iterations", {0, static_cast<double>(last)}, values, {});
    plot.levels(svg::round_step((values.high - values.low) / 6), [](double value) { return number_for_people(value); });
    plot.ticks(svg::round_step(last / 14.0), last);
    add_champions(report, last, plot);
    for (std::size_t at = 0; at < report.of_iteration.size(); ++at) {
        const auto* m = report.of_iteration[at];
        const IterationView& i = all[at];
        if (m == nullptr || !m->value) {
            // Rejected or failed before anything was measured.
            if (i.ended && !i.kept()) {
                plot.point(
                    {fmt::format("cross {}", colour_of(i)),
                     fmt::format("iteration {}: {}, not measured", numbered(i), verdict_text(i)), link_to(i.number)},
                    i.number, values.low, svg::Shape::cross);
            }
            continue;
        }
        const std::string title = fmt::format("iteration {}: {} = {}{}{}; {}{}", numbered(i), shown(m->metric, 60),
                                              value_text(*m), m->gain ? ", " : "", gain_text(m), verdict_text(i),
                                              m->suspect ? "; suspect: the base had moved" : "");
        plot.point({std::string(colour_of(i)), title, link_to(i.number)}, i.number, *m->value,
                   i.promoted   ? svg::Shape::diamond
                   : last > 300 ? svg::Shape::dot
                                : svg::Shape::circle);
    }
    return plot.svg();
}

// One square per iteration, in order, each linked to it.
std::string outcome_strip(const Report& report) {
    const auto& all = report.run.view.iterations;
    constexpr std::size_t k_row = 50;
    constexpr double k_cell = 17, k_left = 84;
    const std::size_t rows = (all.size() + k_row - 1) / k_row;
    std::string chart = svg::open(980, static_cast<double>(rows) * (k_cell + 3) + 4, "the outcomes in order", true);
    for (std::size_t n = 0; n < all.size(); ++n) {
        const std::size_t row = n / k_row;
        const double y = static_cast<double>(row) * (k_cell + 3) + 2;
        if (n % k_row == 0) {
            chart += svg::text(k_left - 8, y + 12.5, fmt::format("{}", all[n].number), svg::Anchor::end);
        }
        const std::string title = fmt::format("iteration {}: {}", numbered(all[n]), verdict_text(all[n]));
        chart += svg::rect({std::string(colour_of(all[n])), title, link_to(all[n].number)},
                           {k_left + static_cast<double>(n % k_row) * (k_cell + .6), y, k_cell - 2, k_cell - 2});
    }
    return chart.append(svg::k_close);
}

struct CostBar {
    int first = 0, last = 0;
    double agent = 0, device = 0, rest = 0, tokens = 0;  // hours; millions
    double time() const { return agent + device + rest; }
};

std::vector<CostBar> cost_bars(const loop::RunView& view) {
    constexpr double k_ms_an_hour = 3.6e6;
    constexpr std::size_t k_most_bars = 150;
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

// Time of the agent, the device and the rest, and tokens, per iteration. Above 150 iterations, neighbours share a bar.
std::string cost_chart(const Report& report) {
    const auto bars = cost_bars(report.run.view);
    double most = 0;
    for (const CostBar& bar : bars) most = std::max(most, bar.time());
    if (most <= 0) return {};
    const auto count = static_cast<double>(bars.size());
    const double width = std::min(880 / count, 40.0);
    svg::Plot plot("time by iteration", {0, count}, {0, most}, {.width = width * count, .height = 120});
    plot.level(most, hours_text(most), false);
    plot.level(0, "0");
    const auto named = std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(46 / width)));
    for (std::size_t i = 0; i < bars.size(); ++i) {
        const CostBar& bar = bars[i];
        const auto x = static_cast<double>(i);
        const std::string which = bar.first == bar.last ? fmt::format("iteration {}", bar.first)
                                                        : fmt::format("iterations {} to {}", bar.first, bar.last);
        std::string title = which + ":";
        for (const auto& [name, hours] : {std::pair{"agent", bar.agent}, {"device", bar.device}, {"other", bar.rest}}) {
            if (hours > 0) title += fmt::format(" {} {},", name, hours_text(hours));
        }
        if (bar.tokens > 0) title += fmt::format(" {:.2f} million tokens,", bar.tokens);
        title.pop_back();
        double below = 0;
        for (const auto& [part, css] : {std::pair{bar.agent, "agent"}, {bar.device, "trouble"}, {bar.rest, "none"}}) {
            if (part / most < 5e-4) continue;
            plot.area({css, title}, x, x + std::max(1 - 1.5 / width, .5), below, below + part);
            below += part;
        }
        if (i % named == 0) plot.tick(x + .5, fmt::format("{}", bar.first));
    }
    return plot.svg();
}

std::string failure_chart(const Report& report) {
    std::vector<svg::Bar> bars;
    for (const FailureClass& one : report.failures) {
        bars.push_back({shown(runlog::outcome_phrase(one.outcome), 30),
                        std::string(colour_of(true, false, one.outcome)), static_cast<double>(one.count),
                        fmt::format("{}", one.count)});
    }
    return svg::bars("iterations that were not accepted, by result", bars, 190);
}

// The three most frequent signs of each kind of failure.
Json signs_json(const Report& report) {
    Json list = Json::array();
    for (const FailureClass& one : report.failures) {
        std::vector<std::pair<int, std::string>> signs;
        for (const auto& [sign, count] : one.signs) signs.emplace_back(count, sign);
        std::stable_sort(signs.begin(), signs.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        if (signs.size() > 3) signs.resize(3);
        for (const auto& [count, sign] : signs) {
            if (sign.empty()) continue;
            list.push_back({{"result", shown(runlog::outcome_phrase(one.outcome))},
                            {"count", count},
                            {"sign", runlog::reason_words(sign)}});
        }
    }
    return list;
}

std::string champion_text(const Report& report) {
    if (!report.measured || !report.measured->champion || !report.measured->champion->value) return {};
    const auto& champion = *report.measured->champion;
    return fmt::format("{} ({}, {})", value_text(champion), short_commit(champion.commit), shown(champion.metric, 60));
}

// Adds `words` to an iteration of gdnctl.loop-report/1, and to its stages whether they failed.
void add_words(Json& iteration, const IterationView& i, const loop::MeasuredView* m) {
    const auto count = i.attempts.size();
    Json words = {{"colour", colour_of(i)},
                  {"result", verdict_text(i)},
                  {"gain", gain_text(m)},
                  {"why", why_text(i)},
                  {"base", short_commit(i.base)},
                  {"head", or_dash(short_commit(i.head))},
                  {"cost", cost_text({i.wall_ms, i.agent_ms, i.tpu_ms, i.tokens})},
                  {"attempts", fmt::format("{} attempt{}", count, count == 1 ? "" : "s")}};
    bool told = false;
    for (Json& stage : iteration["stages"]) {
        stage["bold"] = stage["verdict"] == "skip" ? Json() : stage["verdict"];
        told = told || !stage["gates"].empty();
    }
    if (m != nullptr) {
        words["value"] = value_text(*m);
        words["whole_gain"] = m->gain ? runlog::whole_gain_text(*m->gain) : std::string();
        words["decision"] = shown(runlog::decision_words(m->decision), 60);
        if (!told) words["gates"] = iteration["measured"]["gates"];
    }
    words["has_table"] = !iteration["stages"].empty() || (words.contains("gates") && !words["gates"].empty());
    iteration["words"] = std::move(words);
}

}  // namespace

std::string report_html(const Report& report) {
    Json data = report_json(report);
    const auto& all = report.run.view.iterations;
    for (std::size_t at = 0; at < all.size(); ++at) {
        add_words(data["iterations"][at], all[at], report.of_iteration[at]);
    }
    data["run"] = shown(report.run.view.run);
    data["metric"] = shown(report.metric);
    const Heading& heading = report.heading;
    data["page"] = {{"standing", standing(report.run)},
                    {"failures", report.run.view.failures},
                    {"result", heading.result},
                    {"target", heading.target},
                    {"repository", heading.repository},
                    {"agent", heading.agent},
                    {"dates", heading.dates},
                    {"champion", champion_text(report)},
                    {"metric_chart", metric_chart(report)},
                    {"outcome_chart", outcome_strip(report)},
                    {"cost_chart", cost_chart(report)},
                    {"failure_chart", failure_chart(report)},
                    {"signs", signs_json(report)}};
    return html::page("Run {{run|60}}", k_page, data);
}

}  // namespace gdnctl::loop::report
