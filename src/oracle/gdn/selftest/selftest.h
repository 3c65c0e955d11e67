// Does the oracle on this machine tell right from wrong? Mutants of a chunked kernel, forward and backward, that it
// must catch, and honest variants that it must let pass.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

struct SelftestTotals {
    std::size_t mutants = 0, caught = 0, right_stage = 0, right_place = 0;
    std::size_t variants = 0, false_alarms = 0;
};

// One mutant that was missed or misplaced, or one honest variant that was flagged.
struct SelftestFinding {
    std::string kind;  // "missed", "stage", "place", "false alarm"
    std::string name;  // "rounding of the state / real, heads 2 of 4"
    std::string expected, got;
};

struct SelftestReport {
    SelftestTotals totals, backward;  // of forward passes, and of gradients
    // Of faults that no known mistake of the search explains, apart. No variants.
    SelftestTotals unexpected, backward_unexpected;
    // Steps of another kernel, each spoilt in every one of some ways; and in ways that the search was never changed
    // for.
    SelftestTotals spoilt, spoilt_later;
    std::vector<SelftestFinding> findings;

    // 100 % caught, no false alarm, 90 % of the stages and 95 % of the places right, of each.
    bool passed() const;
};

struct SelftestOptions {
    int threads = 1;
    std::size_t every = 1;       // judge one of so many mutants, and one of so many cases' variants
    bool every_step = false;     // of the other kernel, in every way and everywhere: minutes
    std::function<bool()> stop;  // asked between two judgements: true ends the test early
};

SelftestReport run_selftest(const SelftestOptions& options);

}  // namespace gdnctl::oracle
