// Relations that the exact gradients of any linear cross-entropy satisfy, over whole tensors and without a truth.
#pragma once

#include <vector>

#include "oracle/linear_ce/judge/dump.h"
#include "oracle/linear_ce/judge/truth.h"

namespace gdnctl::oracle::linear_ce {

struct Invariant {
    double value = 0, limit = 0;
    std::size_t at = 0;        // I2: the hidden dimension of the worst sum
    double got = 0, want = 0;  // the two sums

    bool holds() const { return value <= limit; }  // not for NaN
};

struct Invariants {
    Invariant products;  // I1: sum gx x = sum gw w, as a part of sum |gx x|
    Invariant columns;   // I2: sum_v gw[h,v] = sum_b x[b,h] d_lse[b], as a part of sum_v |gw[h,v]|; not with a cap
};

// Both gradients must be there. `lse` is that of all rows.
Invariants invariants_of(const Problem& problem, const Dump& dump, const std::vector<double>& lse, int threads);

}  // namespace gdnctl::oracle::linear_ce
