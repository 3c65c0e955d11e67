#include "cli/wrap.h"

#include <fmt/format.h>

namespace gdnctl::cli {

namespace {

// Width of UTF-8 text in columns, counting one per code point.
int width_of(std::string_view text) {
    int width = 0;
    for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
    return width;
}

// Appends wrapped words to `out`, whose last line is `column` wide; later lines start at `indent`.
void append_wrapped(std::string& out, int column, std::string_view text, int indent, int columns) {
    bool line_empty = true;
    while (!text.empty()) {
        const std::size_t start = text.find_first_not_of(" \n");
        if (start == std::string_view::npos) break;
        text.remove_prefix(start);
        const std::string_view word = text.substr(0, text.find_first_of(" \n"));
        text.remove_prefix(word.size());
        const int width = width_of(word);
        if (!line_empty && column + 1 + width > columns) {
            out += '\n';
            out.append(static_cast<std::size_t>(indent), ' ');
            column = indent;
            line_empty = true;
        }
        if (!line_empty) {
            out += ' ';
            ++column;
        }
        out += word;
        column += width;
        line_empty = false;
    }
    out += '\n';
}

}  // namespace

std::string wrap(std::string_view text, int indent, int columns) {
    std::string out(static_cast<std::size_t>(indent), ' ');
    append_wrapped(out, indent, text, indent, columns);
    return out;
}

std::string two_columns(std::string_view left, std::string_view right, int at, int columns) {
    std::string out = "  ";
    int column = 2 + width_of(left);
    // If two names of an option are too long for one line, each gets its own.
    if (const std::size_t comma = left.rfind(", "); column > columns && comma != std::string_view::npos) {
        const std::size_t indent = left.find_first_not_of(' ');
        out += fmt::format("{},\n  {:{}}", left.substr(0, comma), "", indent);
        left.remove_prefix(comma + 2);
        column = 2 + static_cast<int>(indent) + width_of(left);
    }
    out += left;
    if (right.empty()) return out + '\n';
    if (column + 2 > at) {
        out += '\n';
        column = 0;
    }
    out.append(static_cast<std::size_t>(at - column), ' ');
    append_wrapped(out, at, right, at, columns);
    return out;
}

}  // namespace gdnctl::cli
