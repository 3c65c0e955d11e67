// How far a dumped tensor is from its truth, in units of its budget.
#pragma once

#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/groups.h"
#include "oracle/gdn/compare/local.h"

namespace gdnctl::oracle {

// One tensor of the dump beside its truth, both in the canonical axes order.
struct Pair {
    DType judged = DType::f32;
    std::vector<double> got;
    const std::vector<double>* want = nullptr;
    const TensorBudget* budget = nullptr;
    Groups groups;

    // What an element is granted by itself; infinity: not known.
    double granted(std::size_t i) const {
        return budget->local.empty() ? HUGE_VAL : granted_locally(budget->local, i, (*want)[i], judged);
    }
};

// Whether a finite value of the truth stays finite in the dtype that the dump stands for; nothing is held in fp64.
bool fits(double want, DType judged);

// The budget of each group with the rounding of the stored dtype added: its error is the truth's distance to it.
std::vector<GroupBudget> with_output_rounding(const Pair& pair, int threads);

// Where the dump is worst: values that are not finite where the truth is, then the largest errors in units of what
// their groups and they themselves are granted. The worst first.
std::vector<std::size_t> worst_elements(const Pair& pair, const std::vector<GroupBudget>& budgets, int threads);

// Of groups, and of the single element that is farthest beyond what it is granted by itself.
double error_over_budget(const Pair& pair, const std::vector<GroupBudget>& budgets, int threads);
double local_error_over_budget(const Pair& pair, int threads);

}  // namespace gdnctl::oracle
