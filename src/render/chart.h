// Charts of a page, as SVG without scripts. Lengths are in units of a CSS pixel.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
// A class, what a pointer shows (plain text, or nothing), and the element of the page that a click leads to.
struct Mark {
    std::string css;
    std::string title = {};
    std::string link = {};
};
std::string rect(const Mark& mark, const Box& box);

// The smallest of 1, 2 and 5 times a power of ten that is at least `least`: a step between ticks. 1 for what is not
// above 0.
double round_step(double least);

struct Axis {
    double low = 0, high = 1;
    bool logarithmic = false;  // low and high are then powers of ten
};

enum class Shape { dot, circle, large_circle, diamond, cross };  // cross: needs the class `cross`, too

// Values over two axes. What lies beyond the vertical axis is drawn at its edge.
class Plot {
public:
    // Of the area between the axes; `left`: room for the labels of the vertical axis.
    struct Size {
        double width = 880, height = 260, left = 84;
        bool scales = true;
    };
    Plot(std::string_view label, Axis x, Axis y, Size size);

    double x_of(double value) const;
    double y_of(double value) const;
    double left() const { return m_size.left; }

    void level(double y, std::string_view text, bool line = true);  // a label of the vertical axis
    void levels(double step, std::string (*text)(double));          // at the multiples of `step`
    void tick(double x, std::string_view text);                     // a label of the horizontal axis
    void ticks(double step, int last);                              // at the multiples of `step`, as whole numbers
    void area(const Mark& mark, double x1, double x2, double y1, double y2);
    void line(std::string_view css, double x1, double y1, double x2, double y2);
    void curve(std::string_view css, double x1, double y1, double x2, double y2);
    void polyline(std::string_view css, const std::vector<std::pair<double, double>>& points);
    // Beyond the vertical axis it is an arrow, whatever the shape.
    void point(const Mark& mark, double x, double y, Shape shape);
    // `dx` and `dy`: its distance from the place.
    void note(double x, double y, double dx, double dy, std::string_view text, Anchor anchor = Anchor::middle);
    std::string svg() const;

private:
    std::string m_label;
    Axis m_x, m_y;
    Size m_size;
    std::string m_marks;
};

struct Bar {
    std::string name, css;
    double value = 0;
    std::string text;  // at its end
};
// Horizontal bars, with names of `left` units at most; empty without bars. `tick`: labels of an axis above them.
std::string bars(std::string_view label, std::span<const Bar> bars, double left, std::string (*tick)(double) = nullptr);

// Squares of colours, each with what it means, as HTML; `first` and `last` are text around them.
std::string legend(const std::vector<std::pair<std::string, std::string>>& items, std::string_view first = {},
                   std::string_view last = {});

}  // namespace gdnctl::svg
