// The two charts of a verdict's page, as SVG without scripts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle_html {

// Class of a colour: error / budget up to 1, up to the OK band, up to the WRONG band, above. NaN counts as above.
int level(double error);

// Error / budget by lane (rows) and chunk (columns), followed by that of the state `state`. Above 256 chunks, several
// share a column; of more than 512 lanes, only the worst are shown.
std::string lane_map(const oracle::GdnReference& reference, const std::vector<oracle::LaneErrors>& errors,
                     std::string_view state);

// Error / budget by token on a logarithmic scale, for the worst value head of each. The token `marked` has a line
// labelled `mark`. Without errors it shows `missing`.
struct TokenChart {
    const std::vector<double>& errors;
    std::optional<std::int64_t> marked;
    std::string_view mark, missing;
};
std::string token_chart(const TokenChart& chart);

// The token (position in its sequence) where out first goes wrong, or the gradients last, since they run backwards.
// nullopt: none, or the tensor has no tokens.
std::optional<std::int64_t> wrong_token(const oracle::GdnReference& reference, const oracle::GdnReport& report,
                                        bool gradients);

}  // namespace gdnctl::oracle_html
