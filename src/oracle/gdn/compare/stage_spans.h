// Decomposes the errors of a lane's first wrong chunk.
#pragma once

#include "oracle/gdn/compare/stage_search.h"

namespace gdnctl::oracle {

enum class Answer { no, yes, unknown };

struct ErrorSpans {
    // Whether each token's error is a combination of rows up to its own. Unknown if that could be by chance.
    Answer sums_of_u = Answer::unknown, sums_of_v = Answer::unknown, sums_of_ks = Answer::unknown;
    bool alone = false;  // everything after the chunk is right
    // Whether a wrong state before the chunk explains these errors and the following ones, or a wrong U in this chunk
    // only.
    Answer state_before = Answer::unknown, writes = Answer::unknown;
};
// `s` must have all columns, and a chunk in which out is wrong.
ErrorSpans spans_of(const Section& s);

// How much the entries of M, of P, or of both equally, must change to make out right, if its errors are combinations of
// rows of U.
struct EntryPrices {
    double m = 0, p = 0, both = 0;
};
EntryPrices entry_prices(const Section& s);

}  // namespace gdnctl::oracle
