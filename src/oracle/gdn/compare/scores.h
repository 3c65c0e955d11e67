// The distance of a dumped tensor from its truth, in units of its budget.
#pragma once

#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/groups.h"
#include "oracle/gdn/compare/local.h"

namespace gdnctl::oracle {

// One tensor of the dump and its truth, both in canonical axis order.
struct Pair {
    DType judged = DType::f32;
    std::vector<double> got;
    const std::vector<double>* want = nullptr;
    const TensorBudget* budget = nullptr;
    Groups groups;

    // The allowance of an element by itself; infinity: unknown.
    double granted(std::size_t i) const {
        return budget->local.empty() ? HUGE_VAL : granted_locally(*budget, i, (*want)[i], judged);
    }
};

// Whether a finite value of the truth stays finite in the dtype that the dump stands for; fp64 counts as fp32.
bool fits(double want, DType judged);

// The budget of each group plus the rounding error of the stored dtype, which is the truth's distance to it.
std::vector<GroupBudget> with_output_rounding(const Pair& pair, int threads);

// The dump's worst elements: values that are not finite where the truth is, then the largest errors in units of the
// allowances of their groups and of themselves. Worst first.
std::vector<std::size_t> worst_elements(const Pair& pair, const std::vector<GroupBudget>& budgets, int threads);

// Of groups, and of the single element that exceeds its own allowance most.
double error_over_budget(const Pair& pair, const std::vector<GroupBudget>& budgets, int threads);
double local_error_over_budget(const Pair& pair, int threads);

}  // namespace gdnctl::oracle
