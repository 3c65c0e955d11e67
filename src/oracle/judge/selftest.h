// How a self-test of the oracle counts: it must find and locate the mistakes that the search knows, and accept correct
// results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "oracle/judge/verdict.h"

namespace gdnctl::oracle {

struct SelftestTotals {
    std::size_t mistakes = 0, caught = 0, right_stage = 0, right_place = 0;
    std::size_t variants = 0, false_alarms = 0;  // results of correct kernels

    // 100 % caught, no false alarm, 90 % of the stages and 95 % of the places right.
    bool reached() const;
};

// A mistake that was missed or misplaced, or a correct result that was flagged.
struct SelftestFinding {
    std::string kind;  // "missed", "stage", "place", "false alarm"
    std::string name, expected, got;
};

struct SelftestReport {
    SelftestTotals totals;
    std::optional<SelftestTotals> backward;  // if gradients are counted separately
    std::vector<SelftestFinding> findings;

    bool passed() const { return totals.reached() && (!backward || backward->reached()); }
};

// What became of a mistake. Stages and places are as expected and as found, in words.
struct JudgedMistake {
    std::string name;
    Verdict verdict = Verdict::ok;
    bool right_stage = false, right_place = false;
    std::string stage, found_stage, place, found_place;
};

// Both count into `totals`, which is a part of `report`, and record there what went wrong.
void count_mistake(const JudgedMistake& mistake, SelftestTotals& totals, SelftestReport& report);
void count_variant(std::string name, Verdict verdict, const std::string& reason, SelftestTotals& totals,
                   SelftestReport& report);

}  // namespace gdnctl::oracle
