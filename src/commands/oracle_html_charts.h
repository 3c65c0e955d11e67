// The two pictures of a verdict's page, as SVG without scripts.
#pragma once

#include <string>

#include "gdnctl/oracle/gdn_compare.h"

namespace gdnctl::commands::oracle_html {

// Class of a colour: error / budget up to 1, up to the band of OK, up to that of WRONG, beyond. NaN is beyond.
int level(double error);

// Error / budget by lane (rows) and chunk (columns), with the final state behind. Columns share when there are more
// than 256 chunks; of more than 512 lanes the worst are shown.
std::string lane_map(const oracle::GdnReference& reference, const oracle::GdnReport& report);

// Error / budget by token on a logarithmic scale, the worst value head of each, with the first wrong token marked.
std::string token_chart(const oracle::GdnReference& reference, const oracle::GdnReport& report);

}  // namespace gdnctl::commands::oracle_html
