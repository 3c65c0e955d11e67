// What honest backward passes are off by on exactly these inputs, measured.
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
