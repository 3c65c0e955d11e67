// Does the judge of linear-ce tell right from wrong on this machine?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "oracle/linear_ce/judge/compare.h"

namespace gdnctl::oracle::linear_ce {

struct SelftestFinding {
    std::string kind;  // "missed", "stage", "false alarm"
    std::string name, expected, got;
};

struct SelftestReport {
    std::size_t mutants = 0, caught = 0, right_stage = 0;
    std::size_t variants = 0, false_alarms = 0;
    std::vector<SelftestFinding> findings;

    // All caught, 90 % of the stages right, no false alarm.
    bool passed() const { return caught == mutants && false_alarms == 0 && right_stage * 10 >= mutants * 9; }
};

SelftestReport run_selftest(const Work& work);

// What the kernels of this library write for a problem. `block`: columns at a time, 0: their own choice.
TensorFile kernel_outputs(const Problem& problem, const Run& run);

}  // namespace gdnctl::oracle::linear_ce
