// The figures of one compared tensor that need no budget.
#pragma once

#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

struct Rule {
    double rtol = 1e-4, atol = 1e-4;
};

// Fills every metric of `report` but budget, verdict and worst. `report.judged` must be set. Elements that are not
// finite on either side are counted and take part in no average; a rule counts them as outside unless both sides agree.
void measure(const std::vector<double>& got, const std::vector<double>& want, const Rule& rule, TensorReport& report,
             int threads);

}  // namespace gdnctl::oracle
