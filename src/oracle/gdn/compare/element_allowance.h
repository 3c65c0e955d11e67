// What correct arithmetic may do to a single element: an allowance from its own token, head and column. With the
// budgets of groups alone, one extreme value, even one that a gate has erased, would excuse everything around it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

// Magnitudes that errors are relative to, bounded from the inputs alone, and their components.
struct LocalSizes {
    std::vector<float> out;                // [B*T, Hv, dv]: s |q| |S_j|, S_j a column of the state; inf: it overflows
    std::vector<float> state;              // [N, Hv, dv]: |S_j|
    std::vector<float> query;              // [B*T, Hv]: s |q|
    std::vector<float> gate_loss;          // [B*T, Hv]: relative loss from fp32 sums of the gates of earlier tokens
    std::vector<float> state_gate_loss;    // [N, Hv]
    std::vector<std::vector<float>> lost;  // by head, [tokens, dv]: loss of the state where decays underflow; empty:
                                           // none
    std::vector<double> largest_lost;      // per head
    std::vector<double> finally_lost;      // per head, after its last token
    // Per head, for each element of its final state, and averaged over its tokens: the age in tokens of the state's
    // content, weighted by its square.
    std::vector<double> state_age, out_age;
    // What the error of exp() adds up to, relative to the state: see DecayDrift. Of each row of out, and per head after
    // its last token and averaged over its tokens.
    std::vector<float> drift;  // [B*T, Hv]
    std::vector<double> state_drift, out_drift;
};

LocalSizes local_sizes(const GdnProblem& problem, const GdnContract& contract, int threads);

// The largest error / size of each row of out and of each final state; values that are not finite were not measured.
struct LocalErrors {
    std::vector<float> out;    // [B*T, Hv]
    std::vector<float> state;  // [N, Hv]
};
LocalErrors local_errors(const GdnProblem& problem, const LocalSizes& sizes, const GdnOutputs& run,
                         const GdnOutputs& truth, int threads);

// The measurements of budget.cpp.
struct LocalMeasured {
    LocalErrors base_a, base_b, chunk_a, chunk_b;
};

// Fills `local` of both budgets. `widening` as in GdnReference.
void grant_locally(const GdnProblem& problem, const GdnContract& contract, const LocalMeasured& measured,
                   const LocalSizes& sizes, const std::vector<double>& widening, double chunk_allowance,
                   TensorBudget& out, TensorBudget& state);

// The allowed error of element `i`, stored as `judged`. A truth that overflows fp32 allows anything.
inline double granted_locally(const TensorBudget& budget, std::size_t i, double want, DType judged) {
    double size = std::fabs(want);
    if (!(size <= static_cast<double>(std::numeric_limits<float>::max()))) return HUGE_VAL;
    const auto granted = static_cast<double>(budget.local[i / budget.local_width]);
    if (!budget.summed.empty()) size = std::max(size, static_cast<double>(budget.summed[i / budget.local_width]));
    if (judged == DType::bf16) return granted + 0x1p-8 * size;
    if (judged == DType::f16) return granted + 0x1p-11 * size + 0x1p-25;
    return granted;
}

}  // namespace gdnctl::oracle
