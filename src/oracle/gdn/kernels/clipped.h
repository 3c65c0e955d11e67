// The chunked form in fp64 with exponents clipped as Marin's Pallas kernels clip them: c_i, c_i - c_j and c_last - c_i,
// the sums of gates inside a chunk, to +-limit. No recurrence gives that result where a sum is beyond the limit.
#pragma once

#include <cstddef>
#include <vector>

#include "oracle/gdn/contract/problem.h"

namespace gdnctl::oracle {

// Whether the contract clips sums and some sum of gates is beyond its limit.
bool clips_sums(const GdnProblem& problem, const GdnContract& contract);

GdnOutputs run_clipped64(const GdnProblem& problem, const GdnContract& contract, int threads);

// One value head of one sequence. Rows of q and k are `key_stride` apart, of v, d_out and dv `value_stride`, of gates
// `gate_stride`, of dq and dk_out `gradient_stride`.
struct ClippedLane {
    const double *q = nullptr, *k = nullptr, *v = nullptr, *g = nullptr, *beta = nullptr;
    std::size_t key_stride = 0, value_stride = 0, gate_stride = 0, gradient_stride = 0;
    std::size_t tokens = 0, dk = 0, dv = 0, chunk = 64;
    double scale = 1;
    ExpClip clip;
    double* state = nullptr;  // [dk, dv]; the forward pass leaves the final state there
    double* out = nullptr;    // forward pass only
    const double* d_out = nullptr;
    double* d_state = nullptr;  // [dk, dv]: of the final state; the backward pass leaves that of the initial one there
    double *dq = nullptr, *dk_out = nullptr, *dv_out = nullptr, *dg = nullptr, *dbeta = nullptr;
};
void clipped_forward(const ClippedLane& lane);
void clipped_backward(const ClippedLane& lane);

}  // namespace gdnctl::oracle
