// Renders a verdict as a self-contained page.
#pragma once

#include <string>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle_html {

// No scripts or external resources; light or dark by the reader's system setting.
std::string page(const oracle::GdnReference& reference, const oracle::GdnReport& report);

}  // namespace gdnctl::oracle_html
