// Where an error is: along the named axes of an operator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::oracle {

struct PlaceAxis {
    std::string_view name, several;     // "value head", "value heads"
    std::vector<std::int64_t> at = {};  // in ascending order; empty: the name says it all
    std::int64_t extent = 0;            // of the axis; 0: not told
    std::string_view note = {};         // "(of 64 tokens)"
    bool whole = false;                 // all from the first of `at` to the second
};

// "where: value heads 0-2 of 8; chunk 3 (of 64 tokens)"
std::string place_text(const std::vector<PlaceAxis>& axes);

}  // namespace gdnctl::oracle
