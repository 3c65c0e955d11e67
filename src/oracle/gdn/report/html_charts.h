// The two pictures of a verdict's page, as SVG without scripts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle_html {

// Class of a colour: error / budget up to 1, up to the band of OK, up to that of WRONG, beyond. NaN is beyond.
int level(double error);

// Error / budget by lane (rows) and chunk (columns), with that of the state `state` behind. Columns share when there
// are more than 256 chunks; of more than 512 lanes the worst are shown.
std::string lane_map(const oracle::GdnReference& reference, const std::vector<oracle::LaneErrors>& errors,
                     std::string_view state);

// Error / budget by token on a logarithmic scale, the worst value head of each. The token `marked` has a line named
// `mark`. `missing` is said where there are no errors.
struct TokenChart {
    const std::vector<double>& errors;
    std::optional<std::int64_t> marked;
    std::string_view mark, missing;
};
std::string token_chart(const TokenChart& chart);

// The token, counted in its sequence, at which out goes wrong first, or the gradients last (they run backwards).
// nullopt: none, or not of a tensor with tokens.
std::optional<std::int64_t> wrong_token(const oracle::GdnReference& reference, const oracle::GdnReport& report,
                                        bool gradients);

}  // namespace gdnctl::oracle_html
