// How the selftest counts, for both outputs and gradients.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/selftest/selftest.h"

namespace gdnctl::oracle {

// A mutant and its verdict. The places (where it changed values, and where it was found) are in words.
struct JudgedMutant {
    std::string name;
    const std::vector<std::string>& stages;  // any of these is right
    const GdnReport& report;
    bool right_place = false;
    std::string changed, found;
};

// Both count into `totals`, which is a part of `report`, and record there what was missed, misplaced or flagged.
void count_mutant(const JudgedMutant& mutant, SelftestTotals& totals, SelftestReport& report);
void count_variant(std::string_view what, std::string_view case_name, const GdnReport& verdict, SelftestTotals& totals,
                   SelftestReport& report);

}  // namespace gdnctl::oracle
