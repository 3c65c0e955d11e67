// Text in columns.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::cli {

// Wraps the words of `text` into lines of at most `columns`, each indented by `indent`. A longer word gets a line of
// its own. Ends with a newline.
std::string wrap(std::string_view text, int indent, int columns);

// "  left      right, wrapped": `right` starts at column `at`, on a new line if `left` extends beyond it.
std::string two_columns(std::string_view left, std::string_view right, int at, int columns);

}  // namespace gdnctl::cli
