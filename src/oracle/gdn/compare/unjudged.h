// What of a dump was not judged, and what a dump lacks.
#pragma once

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

// Fills `not_compared`, `unknown` and `unjudged_gradients`; the report's tensors must be there.
void list_unjudged(const GdnReference& reference, const TensorFile& dump, GdnReport& report);

}  // namespace gdnctl::oracle
