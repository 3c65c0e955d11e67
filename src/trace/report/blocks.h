// Text that views produce and sinks lay out: lines and tables. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::trace {

struct Column {
    std::string name;
    bool left = false;      // of text; numbers are right-aligned
    bool optional = false;  // left out where the terminal is too narrow
};
struct Table {
    std::vector<Column> columns;
    std::vector<std::vector<std::string>> rows;
};
// A heading, then lines, then a table; any may be empty.
struct Block {
    std::string heading;
    std::vector<std::string> lines;
    Table table;
    std::vector<std::string> after;  // lines below the table
};

// Text from a trace as one line that hides nothing: see text::visible(); newlines and tabs become blanks.
std::string one_line(std::string_view text);
// As much of the beginning as fits into so many bytes, in whole characters.
std::string first_bytes(const std::string& text, std::size_t bytes);

// Both leave out columns in which no row says anything ("-" or empty).
// For people, within `width` columns: lines are folded, tables lose optional columns, then their longest texts are cut.
// Headings are left out.
std::string as_text(const std::vector<Block>& blocks, int width);
// Headings of `level`, tables with bars.
std::string as_markdown(const std::vector<Block>& blocks, int level);

}  // namespace gdnctl::trace
