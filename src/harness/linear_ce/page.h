// A verdict on linear-ce as one self-contained page.
#pragma once

#include <string>

#include "oracle/linear_ce/judge/compare.h"

namespace gdnctl::harness::linear_ce {

// No scripts and nothing from elsewhere; light or dark as the reader's system is.
std::string page(const oracle::linear_ce::Problem& problem, const oracle::linear_ce::CompareOptions& options,
                 const oracle::linear_ce::Report& report);

}  // namespace gdnctl::harness::linear_ce
