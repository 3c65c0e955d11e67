// Measures the errors of correct backward passes on exactly these inputs.
#pragma once

#include <vector>

#include "oracle/gdn/compare/backward.h"

namespace gdnctl::oracle {

struct MeasuredGradient {
    GradientTruth* truth = nullptr;
    const std::vector<double>& (*values)(const GdnGradients&) = nullptr;
};

// Fills the budgets of `all`, which are gradients of `backward`.
void budget_gradients(const GdnReference& reference, const GdnBackward& backward,
                      const std::vector<MeasuredGradient>& all, int threads);

}  // namespace gdnctl::oracle
