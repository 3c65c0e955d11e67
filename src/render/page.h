// Pages that a browser opens without a network, all with one look: light or dark as the reader's system is.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gdnctl::html {

// Escapes text, also for attributes in double quotes.
std::string escaped(std::string_view text);

// A colour in addition to the common ones, var(--NAME): the class NAME fills shapes of charts and squares of legends
// with it.
struct Colour {
    std::string_view name, light, dark;
};

// What a page adds to the common style.
struct Look {
    std::vector<Colour> colours;
    std::string_view css;
};

// A complete document without scripts. Its content policy keeps a browser from loading anything, whatever the page
// contains. `title` is escaped here; the look and `body` are not.
std::string document(std::string_view title, const Look& look, std::string_view body);

// A table that scrolls where it is wider than the page.
class Table {
public:
    // "tensor|max abs@n": heads, and the class of a column's cells, which is "n" for numbers.
    explicit Table(std::string_view heads);
    void row(std::initializer_list<std::string_view> cells);  // of HTML
    std::string html() const;                                 // empty without rows
    std::string section(std::string_view title) const;        // the same below a heading

private:
    struct Column {
        std::string_view head, css;
    };
    std::vector<Column> m_columns;
    std::string m_rows;
};

std::string section(std::string_view title, std::string_view html);       // empty without content
std::string preformatted(std::string_view title, std::string_view text);  // the same of plain text, as it is
// Names and values of plain text; those without a value are left out.
std::string facts(std::initializer_list<std::pair<std::string_view, std::string>> items);
// Squares of colours, each with what it means; `first` and `last` are text around them.
std::string legend(const std::vector<std::pair<std::string_view, std::string_view>>& items, std::string_view first = {},
                   std::string_view last = {});

}  // namespace gdnctl::html

namespace gdnctl::svg {

// Charts of a page, as SVG without scripts. Lengths are in units of a CSS pixel.

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
