// The chunked form in fp64 with exponents clipped as in Marin's Pallas kernels: the sums of gates inside a chunk (c_i,
// c_i - c_j and c_last - c_i) to +-limit. If a sum exceeds the limit, no recurrence gives the same result.
#pragma once

#include <cstddef>
#include <vector>

#include "oracle/gdn/contract/problem.h"

namespace gdnctl::oracle {

// Whether the contract clips sums and some sum of gates exceeds its limit.
bool clips_sums(const GdnProblem& problem, const GdnContract& contract);

GdnOutputs run_clipped64(const GdnProblem& problem, const GdnContract& contract, int threads);

// One value head of one sequence. Strides between rows: q and k `key_stride`; v, d_out and dv `value_stride`; gates
// `gate_stride`; dq and dk_out `gradient_stride`.
struct ClippedHead {
    const double *q = nullptr, *k = nullptr, *v = nullptr, *g = nullptr, *beta = nullptr;
    std::size_t key_stride = 0, value_stride = 0, gate_stride = 0, gradient_stride = 0;
    std::size_t tokens = 0, dk = 0, dv = 0, chunk = 64;
    double scale = 1;
    ExpClip clip;
    double* state = nullptr;  // [dk, dv]; holds the final state after the forward pass
    double* out = nullptr;    // forward pass only
    const double* d_out = nullptr;
    double* d_state = nullptr;  // [dk, dv]: for the final state; holds that of the initial state after the backward
                                // pass
    double *dq = nullptr, *dk_out = nullptr, *dv_out = nullptr, *dg = nullptr, *dbeta = nullptr;
};
void clipped_forward(const ClippedHead& head);
void clipped_backward(const ClippedHead& head);

}  // namespace gdnctl::oracle
