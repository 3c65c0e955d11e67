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
