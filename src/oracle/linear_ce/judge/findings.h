// Everything that a comparison has computed, for the search for the mistake.
#pragma once

#include <optional>
#include <vector>

#include "oracle/linear_ce/judge/compare.h"
#include "oracle/linear_ce/judge/dump.h"
#include "oracle/linear_ce/judge/limits.h"

namespace gdnctl::oracle::linear_ce {

struct Findings {
    const Problem& problem;
    const Dump& dump;
    RowTruth rows;                     // of the rows that were compared
    std::vector<std::size_t> columns;  // of gw that were compared, with their truth [columns, H]
    std::vector<double> gw;
    std::vector<double> loss, lse;  // of all rows, as good as is known; empty: not known
    bool loss_wrong = false, lse_wrong = false, gx_wrong = false, gw_wrong = false;
    bool argmax_wrong = false, reduced_wrong = false;
    GradientLimit gx_limit, gw_limit;  // what an element may be off by
    const Work& work;
};

// Sets stage, stages, hints and place of a report whose verdict is WRONG.
void diagnose(const Findings& findings, Report& report);

}  // namespace gdnctl::oracle::linear_ce
