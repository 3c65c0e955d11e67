#include "oracle/judge/error_curve.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "render/page.h"
#include "render/svg.h"

namespace gdnctl::oracle {

namespace {

using svg::Anchor;

// The y axis.
struct Ordinate {
    double low = -2, high = 2, top = 10, height = 230;

    double y_of(double error) const {
        const double log = !std::isfinite(error) ? high : error > 0 ? std::log10(error) : low;
        return top + (high - std::clamp(log, low, high)) / (high - low) * height;
    }
    double bottom() const { return top + height; }
};

constexpr double k_chart_left = 78;
constexpr double k_chart_width = 900;

std::string bands(const Ordinate& axis, const Scale& scale) {
    std::string html;
    double below = axis.bottom();
    const double tops[] = {axis.y_of(1), axis.y_of(scale.ok), axis.y_of(scale.wrong), axis.top};
    for (int i = 0; i < 4; ++i) {
        html += svg::rect({fmt::format("e{} band", i)}, {k_chart_left, tops[i], k_chart_width, below - tops[i]});
        below = tops[i];
    }
    // Labels keep a distance of 13 units; those of the bands come first.
    std::vector<double> taken;
    const auto label = [&](double error, const std::string& text) {
        const double y = axis.y_of(error);
        if (std::any_of(taken.begin(), taken.end(), [y](double other) { return std::fabs(other - y) < 13; })) return;
        taken.push_back(y);
        html += svg::text(k_chart_left - 6, y + 4, text, Anchor::end);
    };
    label(scale.wrong, fmt::format("{} WRONG", scale.wrong));
    label(1, "1");
    label(scale.ok, fmt::format("{} OK", scale.ok));
    for (int decade = static_cast<int>(axis.high); decade >= static_cast<int>(axis.low); --decade) {
        label(std::pow(10.0, decade), fmt::format("1e{}", decade));
    }
    return html;
}

// Neighbours share points, of which there are at most 1,800; each shows the worst.
std::string points_of(const ErrorCurve& curve, const Ordinate& axis, double per_place) {
    const std::vector<double>& errors = curve.errors;
    const std::size_t step = std::max<std::size_t>(1, errors.size() / 900);
    std::string points;
    std::string dots;
    for (std::size_t first = 0; first < errors.size(); first += step) {
        double worst = 0;
        for (std::size_t t = first; t < std::min(first + step, errors.size()); ++t)
            worst = worse_error(worst, errors[t]);
        const double x = k_chart_left + per_place * static_cast<double>(first);
        points += fmt::format("{:.1f},{:.1f} ", x, axis.y_of(worst));
        if (errors.size() > 150) continue;
        dots += svg::circle({{}, fmt::format("{} {}: {}", curve.axis, first, times_text(worst, curve.scale))}, x,
                            axis.y_of(worst), 2.2);
    }
    return fmt::format("<polyline points=\"{}\"/>\n{}", points, dots);
}

}  // namespace

std::string curve_html(const ErrorCurve& curve) {
    const std::vector<double>& errors = curve.errors;
    if (errors.empty()) return fmt::format("<p class=soft>{}</p>\n", curve.missing);
    Ordinate axis;
    for (const double e : errors) {
        if (std::isfinite(e) && e > 0) axis.high = std::max(axis.high, std::ceil(std::log10(e)));
    }
    const double per_place = k_chart_width / static_cast<double>(std::max<std::size_t>(errors.size() - 1, 1));
    const auto x_of = [&](auto place) { return k_chart_left + per_place * static_cast<double>(place); };
    std::string html =
        svg::open(k_chart_left + k_chart_width + 20, axis.bottom() + 24, fmt::format("error by {}", curve.axis));
    html += bands(axis, curve.scale);
    if (curve.marked) {
        const double x = x_of(*curve.marked);
        const bool late = *curve.marked * 2 > static_cast<std::int64_t>(errors.size());
        html += svg::line("mark", x, axis.top, x, axis.bottom()) +
                svg::text(late ? x - 5 : x + 5, axis.bottom() - 6,
                          fmt::format("{}: {} {}", curve.mark, curve.axis, *curve.marked),
                          late ? Anchor::end : Anchor::start);
    }
    html += points_of(curve, axis, per_place);
    const auto step = static_cast<std::size_t>(svg::round_step(std::max(1.0, 70 / per_place)));
    for (std::size_t t = 0; t < errors.size(); t += step) {
        html += svg::text(x_of(t), axis.bottom() + 16, fmt::format("{}", t), Anchor::middle);
    }
    html += svg::text(k_chart_left - 12, axis.bottom() + 16, curve.axis, Anchor::end);
    return html.append(svg::k_close);
}

}  // namespace gdnctl::oracle
