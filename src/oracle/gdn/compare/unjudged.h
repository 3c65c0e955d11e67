// Lists what was not judged in a dump, and what is missing from it.
#pragma once

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

// Fills `not_compared`, `unknown` and `unjudged_gradients`; requires the report's tensors.
void list_unjudged(const GdnReference& reference, const TensorFile& dump, GdnReport& report);

}  // namespace gdnctl::oracle
