// Charts of a page, as SVG without scripts. Lengths are in units of a CSS pixel.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::svg {

// The chart, in a box that scrolls; `scales`: as wide as the page allows, instead. `label` says what it shows.
std::string open(double width, double height, std::string_view label, bool scales = false);
inline constexpr std::string_view k_close = "</svg></div>\n";

enum class Anchor { start, middle, end };

// Plain text; y is its base line.
std::string text(double x, double y, std::string_view text, Anchor anchor = Anchor::start);

struct Box {
    double x = 0, y = 0, width = 0, height = 0;
};
// A class, and what a pointer shows: plain text, or nothing.
struct Mark {
    std::string_view css, title = {};
};
std::string rect(const Mark& mark, const Box& box);
std::string circle(const Mark& mark, double x, double y, double radius);
std::string path(const Mark& mark, std::string_view data);
std::string line(std::string_view css, double x1, double y1, double x2, double y2);

// The smallest of 1, 2 and 5 times a power of ten that is at least `least`: a step between ticks. 1 for what is not
// above 0.
double round_step(double least);

}  // namespace gdnctl::svg
