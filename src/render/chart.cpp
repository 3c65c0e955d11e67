#include "render/chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "render/page.h"

namespace gdnctl::svg {

namespace {

constexpr double k_top = 14;

std::string class_of(std::string_view css) {
    if (css.empty()) return {};
    return css.find(' ') == std::string_view::npos ? fmt::format(" class={}", css) : fmt::format(" class=\"{}\"", css);
}

// `attributes` begin with a space.
std::string element(std::string_view tag, const Mark& mark, const std::string& attributes) {
    const std::string shape = mark.title.empty()
                                  ? fmt::format("<{}{}{}/>\n", tag, class_of(mark.css), attributes)
                                  : fmt::format("<{0}{1}{2}><title>{3}</title></{0}>\n", tag, class_of(mark.css),
                                                attributes, html::escaped(mark.title));
    return mark.link.empty() ? shape : fmt::format("<a href=\"#{}\">{}</a>\n", html::escaped(mark.link), shape);
}

}  // namespace

std::string open(double width, double height, std::string_view label, bool scales) {
    return fmt::format("<div class=wide><svg width=\"{0:.0f}\" height=\"{1:.0f}\"{2} role=img aria-label=\"{3}\">\n",
                       width, height, scales ? fmt::format(" viewBox=\"0 0 {:.0f} {:.0f}\"", width, height) : "",
                       html::escaped(label));
}

std::string text(double x, double y, std::string_view text, Anchor anchor) {
    const std::string_view where = anchor == Anchor::start    ? ""
                                   : anchor == Anchor::middle ? " text-anchor=\"middle\""
                                                              : " text-anchor=\"end\"";
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, where, html::escaped(text));
}

std::string rect(const Mark& mark, const Box& box) {
    return element("rect", mark,
                   fmt::format(" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"", box.x, box.y, box.width,
                               box.height));
}

double round_step(double least) {
    if (!(least > 0)) return 1;
    const double decade = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor * decade >= least) return factor * decade;
    }
    return 10 * decade;
}

Plot::Plot(std::string_view label, Axis x, Axis y, Size size) : m_label(label), m_x(x), m_y(y), m_size(size) {}

double Plot::x_of(double value) const {
    return m_size.left + (value - m_x.low) / std::max(m_x.high - m_x.low, 1e-12) * m_size.width;
}

double Plot::y_of(double value) const {
    if (m_y.logarithmic) value = !std::isfinite(value) ? m_y.high : value > 0 ? std::log10(value) : m_y.low;
    return k_top + (m_y.high - std::clamp(value, m_y.low, m_y.high)) / (m_y.high - m_y.low) * m_size.height;
}

void Plot::level(double y, std::string_view text, bool line) {
    const double at = y_of(y);
    if (line) {
        m_marks += fmt::format("<line class=axis x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                               m_size.left, m_size.left + m_size.width, at, at);
    }
    m_marks += svg::text(m_size.left - 6, at + 4, text, Anchor::end);
}

void Plot::levels(double step, std::string (*text)(double)) {
    for (double y = std::ceil(m_y.low / step) * step; y <= m_y.high; y += step) level(y, text(y));
}

void Plot::tick(double x, std::string_view text) {
    m_marks += svg::text(x_of(x), k_top + m_size.height + 18, text, Anchor::middle);
}

void Plot::ticks(double step, int last) {
    const int whole = std::max(1, static_cast<int>(step));
    for (int x = 0; x <= last; x += whole) tick(x, fmt::format("{}", x));
}

void Plot::area(const Mark& mark, double x1, double x2, double y1, double y2) {
    const double top = y_of(std::max(y1, y2));
    m_marks += rect(mark, {x_of(x1), top, x_of(x2) - x_of(x1), y_of(std::min(y1, y2)) - top});
}

void Plot::line(std::string_view css, double x1, double y1, double x2, double y2) {
    m_marks += fmt::format("<line{} x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", class_of(css),
                           x_of(x1), x_of(x2), y_of(y1), y_of(y2));
}

void Plot::curve(std::string_view css, double x1, double y1, double x2, double y2) {
    const double middle = (x_of(x1) + x_of(x2)) / 2;
    m_marks += fmt::format("<path{} d=\"M{:.0f} {:.0f} C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}\"/>\n", class_of(css),
                           x_of(x1), y_of(y1), middle, y_of(y1), middle, y_of(y2), x_of(x2), y_of(y2));
}

void Plot::polyline(std::string_view css, const std::vector<std::pair<double, double>>& points) {
    std::string places;
    for (const auto& [x, y] : points) places += fmt::format("{:.1f},{:.1f} ", x_of(x), y_of(y));
    m_marks += fmt::format("<polyline{} points=\"{}\"/>\n", class_of(css), places);
}

void Plot::point(const Mark& mark, double x, double y, Shape shape) {
    const double cx = x_of(x), cy = y_of(y);
    if (!m_y.logarithmic && (y < m_y.low || y > m_y.high)) {
        const double tip = y > m_y.high ? 7 : -7;
        m_marks += element("path", mark, fmt::format(" d=\"M{:.1f} {:.1f} l-5 {} h10 z\"", cx, cy, tip));
    } else if (shape == Shape::diamond) {
        m_marks += element("path", mark, fmt::format(" d=\"M{:.1f} {:.1f} l6 6 -6 6 -6 -6 z\"", cx, cy - 6));
    } else if (shape == Shape::cross) {
        m_marks += element("path", mark, fmt::format(" d=\"M{:.1f} {:.1f} l8 8 m0 -8 l-8 8\"", cx - 4, cy - 4));
    } else {
        const double radius = shape == Shape::dot ? 2.3 : shape == Shape::circle ? 4 : 8;
        m_marks += element("circle", mark, fmt::format(" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"", cx, cy, radius));
    }
}

void Plot::note(double x, double y, double dx, double dy, std::string_view text, Anchor anchor) {
    m_marks += svg::text(x_of(x) + dx, y_of(y) + dy, text, anchor);
}

std::string Plot::svg() const {
    return open(m_size.left + m_size.width + 16, k_top + m_size.height + 26, m_label, m_size.scales) + m_marks +
           std::string(k_close);
}

std::string bars(std::string_view label, std::span<const Bar> bars, double left, std::string (*tick)(double)) {
    if (bars.empty()) return {};
    constexpr double k_width = 960, k_row = 22, k_text = 84;
    const double top = tick != nullptr ? 24 : 2, height = top + k_row * static_cast<double>(bars.size());
    double most = 0;
    for (const Bar& bar : bars) most = std::max(most, bar.value);
    const double scale = (k_width - left - k_text) / most;
    std::string chart = open(k_width, height + 4, label, true);
    for (double at = 0; tick != nullptr && at <= most * 1.0001; at += round_step(most / 6)) {
        const double x = left + scale * at;
        chart += fmt::format("<line class=axis x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n", x,
                             top - 4, height) +
                 text(x, 14, tick(at), Anchor::middle);
    }
    double y = top;
    for (const Bar& bar : bars) {
        chart += text(left - 8, y + 15, bar.name, Anchor::end) +
                 rect({bar.css}, {left, y + 3, bar.value * scale, k_row - 6}) +
                 text(left + bar.value * scale + 5, y + 15, bar.text);
        y += k_row;
    }
    return chart.append(k_close);
}

std::string legend(const std::vector<std::pair<std::string, std::string>>& items, std::string_view first,
                   std::string_view last) {
    std::string html = fmt::format("<p class=legend>{}", html::escaped(first));
    for (const auto& [css, text] : items) {
        html += fmt::format("<span><i class={}></i>{}</span> ", css, html::escaped(text));
    }
    return html + fmt::format("{}</p>\n", html::escaped(last));
}

}  // namespace gdnctl::svg
