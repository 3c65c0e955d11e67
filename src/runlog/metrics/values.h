// Numbers, units and arrows of metric lines.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "runlog/parse/log.h"

namespace gdnctl::runlog::detail {

struct Scale {
    Unit unit = Unit::none;
    double factor = 1;  // factor to the canonical unit
};

// A number as written.
struct Printed {
    double value = 0;
    double half_digit = 0;
    std::string_view text;
    bool null = false;  // n/a
    Scale scale;
    std::size_t end = 0;  // after number and unit
};

// The value or two values after a label.
struct Values {
    Printed first;
    std::optional<Printed> second;
    std::size_t begin = 0, end = 0;
};

// Blanks, and characters for emphasis and code.
inline bool is_soft(char c) { return c == '`' || c == '*' || c == '"' || c == ' ' || c == '\t'; }
std::size_t skip_soft(std::string_view s, std::size_t at);

// [+-]digits[.digits][e[+-]digits], thousands separated by commas; no unit.
std::optional<Printed> read_number(std::string_view s, std::size_t at);
std::optional<Values> read_values(std::string_view s, std::size_t at);
// Length of the arrow at this position (->, U+2192, =>); 0: none.
std::size_t arrow_length(std::string_view s, std::size_t at);

}  // namespace gdnctl::runlog::detail
