#include "loop/report/charts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/for_people.h"
#include "loop/report/verdict_words.h"
#include "render/svg.h"
#include "runlog/records/words.h"

namespace gdnctl::loop::report {

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

}  // namespace gdnctl::loop::report
