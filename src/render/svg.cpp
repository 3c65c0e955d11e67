#include "render/svg.h"

#include <cmath>

#include <fmt/format.h>

#include "render/page.h"

namespace gdnctl::svg {

namespace {

std::string class_of(std::string_view css) {
    if (css.empty()) return {};
    return css.find(' ') == std::string_view::npos ? fmt::format(" class={}", css) : fmt::format(" class=\"{}\"", css);
}

// `attributes` begin with a space.
std::string element(std::string_view tag, const Mark& mark, const std::string& attributes) {
    if (mark.title.empty()) return fmt::format("<{}{}{}/>\n", tag, class_of(mark.css), attributes);
    return fmt::format("<{0}{1}{2}><title>{3}</title></{0}>\n", tag, class_of(mark.css), attributes,
                       html::escaped(mark.title));
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

std::string circle(const Mark& mark, double x, double y, double radius) {
    return element("circle", mark, fmt::format(" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"", x, y, radius));
}

std::string path(const Mark& mark, std::string_view data) {
    return element("path", mark, fmt::format(" d=\"{}\"", data));
}

std::string line(std::string_view css, double x1, double y1, double x2, double y2) {
    return fmt::format("<line{} x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", class_of(css), x1, x2, y1,
                       y2);
}

double round_step(double least) {
    if (!(least > 0)) return 1;
    const double decade = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor * decade >= least) return factor * decade;
    }
    return 10 * decade;
}

}  // namespace gdnctl::svg
