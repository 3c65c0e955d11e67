// A dump against the exact result under one contract.
#pragma once

#include <functional>

#include "oracle/linear_ce/judge/compare.h"
#include "oracle/linear_ce/judge/dump.h"

namespace gdnctl::oracle::linear_ce {

// A report that is WRONG is shown to `to_explain`, which says whether the mistake is to be searched for.
Report judged_as(const Problem& problem, const Dump& dump, const CompareOptions& options,
                 const std::function<bool(const Report&)>& to_explain);

}  // namespace gdnctl::oracle::linear_ce
