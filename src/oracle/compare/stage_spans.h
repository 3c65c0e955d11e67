// What the errors of a lane's first wrong chunk are made of.
#pragma once

#include "oracle/compare/stage_search.h"

namespace gdnctl::oracle {

struct ErrorSpans {
    bool sums_of_u = false, sums_of_v = false, sums_of_ks = false;  // each token's error, of rows up to its own
    bool alone = false;                                             // what follows the chunk is right
    bool state_before = false;  // a wrong state before the chunk explains them, and those that follow
    bool writes = false;        // wrong U in this chunk alone explains them, and those that follow
};
// `s` with all columns.
ErrorSpans spans_of(const Section& s);

}  // namespace gdnctl::oracle
