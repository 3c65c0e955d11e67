// What the errors of a lane's first wrong chunk are made of.
#pragma once

#include "oracle/gdn/compare/stage_search.h"

namespace gdnctl::oracle {

enum class Answer { no, yes, unknown };

struct ErrorSpans {
    // Whether each token's error is a sum of rows up to its own. Unknown where it would be by chance.
    Answer sums_of_u = Answer::unknown, sums_of_v = Answer::unknown, sums_of_ks = Answer::unknown;
    bool alone = false;  // what follows the chunk is right
    // Whether a wrong state before the chunk explains them and those that follow, or wrong U in this chunk alone.
    Answer state_before = Answer::unknown, writes = Answer::unknown;
};
// `s` with all columns, and with a chunk in which out is wrong.
ErrorSpans spans_of(const Section& s);

// How much the entries of M, of P, or of both alike must change to make out right; where its errors are sums of rows of
// U.
struct EntryPrices {
    double m = 0, p = 0, both = 0;
};
EntryPrices entry_prices(const Section& s);

}  // namespace gdnctl::oracle
