// Text in columns.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::cli {

// Words of `text` in lines of at most `columns`, each indented by `indent`; a word that is longer stands alone. Ends
// with a newline.
std::string wrap(std::string_view text, int indent, int columns);

// "  left      right, wrapped": `right` starts at column `at`, on a line of its own when `left` reaches into it.
std::string two_columns(std::string_view left, std::string_view right, int at, int columns);

}  // namespace gdnctl::cli
