// Judges all mutants of gdn, forward and backward, and correct variants of the kernels.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/compare.h"
#include "unit/oracle/mutants/forward_mutants.h"

namespace gdnctl::oracle::testing {

struct MutantTotals {
    std::size_t mutants = 0, caught = 0, right_stage = 0, right_place = 0;
    std::size_t variants = 0, false_alarms = 0;
};

// A mutant that was missed or misplaced, or a correct variant that was flagged.
struct MutantFinding {
    std::string kind;  // "missed", "stage", "place", "false alarm"
    std::string name;  // "rounding of the state / real, heads 2 of 4"
    std::string expected, got;
};

struct MutantReport {
    MutantTotals totals, backward;  // of forward passes, and of gradients
    // Separately for faults that no known mistake of the search explains. No variants.
    MutantTotals unexpected, backward_unexpected;
    std::vector<MutantFinding> findings;

    // For each: 100 % caught, no false alarm, 90 % of the stages and 95 % of the places right.
    bool passed() const;
};

struct MutantOptions {
    int threads = 1;
    std::size_t every = 1;       // judges every N-th mutant, and the variants of every N-th case
    std::function<bool()> stop;  // called between two judgements; true ends the test early
};

MutantReport run_mutant_set(const MutantOptions& options);
// Judges these alone, counted as `totals`.
MutantReport judge_mutants(const std::vector<Mutant>& mutants, const MutantOptions& options);

// A case that mutants are judged on, and its reference.
GdnCase mutant_case(bool real, GdnDims dims);
GdnReference mutant_reference(const GdnCase& c, int threads);

}  // namespace gdnctl::oracle::testing
