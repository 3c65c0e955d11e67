// Errors, as multiples of what is allowed, along one named axis of an operator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/judge/scale.h"

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

}  // namespace gdnctl::oracle
