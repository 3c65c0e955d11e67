// Errors, as multiples of what is allowed, along one named axis of an operator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/judge/verdict.h"

namespace gdnctl::oracle {

struct ErrorCurve {
    const std::vector<double>& errors;
    std::string_view axis = "token";
    std::optional<std::int64_t> marked{};  // one place, with a line that `mark` names
    std::string_view mark{}, missing{};    // `missing` is shown instead of no errors
    Scale scale{};
};

// A chart on a logarithmic scale, for a page.
std::string curve_html(const ErrorCurve& curve);

// Errors, as multiples of what is allowed, over two named axes of an operator: the rows' and that of their cells.

struct ErrorRow {
    std::vector<std::string> at;     // on each axis of ErrorMap::axes: "0", "3"
    std::vector<double> cells;       // along the other axis
    std::optional<double> beside{};  // of the column next to them; nullopt: not in the dump
};

struct ErrorMap {
    // An axis of the rows; one of extent 1 is named where there is room.
    struct Axis {
        std::string_view name;
        std::int64_t extent = 0;
    };
    std::vector<Axis> axes;     // "sequence", "head"
    std::string_view rows;      // what a row is: "value head"
    std::string_view cell;      // what a cell is: "chunk"
    std::string cell_size{};    // "64 tokens"; may be empty
    std::string_view beside{};  // what each row has one more error of: "final state"; empty: nothing
    std::vector<ErrorRow> all;
    std::vector<std::size_t> numbers{};  // of the cells; empty: 0, 1, ...
    Scale scale{};
};

// For terminals, one character per cell: '.' up to 1, '-' up to the OK band, '+' up to the WRONG band, '#' above. Above
// 72 cells, several share a character. `of`: what the errors belong to, " of the worst gradient".
std::string map_text(const ErrorMap& map, std::string_view of);
std::string map_key_text();  // the line that explains them

// The same for a page. Above 256 cells, several share a column; of more than 512 rows, only the worst are shown.
std::string map_html(const ErrorMap& map);

}  // namespace gdnctl::oracle
