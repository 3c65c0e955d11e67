// The metrics of one compared tensor that need no budget.
#pragma once

#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

struct Rule {
    double rtol = 1e-4, atol = 1e-4;
};

// Fills every metric of `report` except budget, verdict and worst. `report.judged` must be set. Elements that are not
// finite on either side are counted but excluded from averages; a rule counts them as outside unless both sides agree.
void measure(const std::vector<double>& got, const std::vector<double>& want, const Rule& rule, TensorReport& report,
             int threads);

}  // namespace gdnctl::oracle
