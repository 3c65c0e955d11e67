// A verdict as one self-contained page.
#pragma once

#include <string>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle_html {

// No scripts and nothing from elsewhere; light or dark as the reader's system is.
std::string page(const oracle::GdnReference& reference, const oracle::GdnReport& report);

}  // namespace gdnctl::oracle_html
