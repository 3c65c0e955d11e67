// Gradients and cotangents, and their tensors in files.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/result.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

struct GdnCotangents {
    std::vector<double> d_out;          // [B*T, Hv, dv]
    std::vector<double> d_final_state;  // [N, Hv, dk, dv]; empty: zeros
};

// dL/dx of every input. Rows outside all sequences are 0.
struct GdnGradients {
    std::vector<double> dq, dk;     // [B*T, Hk, dk], of q and k as given: through the l2norm, summed over the GVA group
    std::vector<double> dv;         // [B*T, Hv, dv]
    std::vector<double> dg, dbeta;  // [B*T, Hv], at the operator: of log decay and of beta
    std::vector<double> d_gate, d_logit;   // [B*T, Hv], of gate and beta as given: g, alpha or a; beta or b
    std::vector<double> dA_log, ddt_bias;  // [Hv], raw gates only
    std::vector<double> d_initial_state;   // [N, Hv, dk, dv]
    // [B*T, Hk], only with an l2norm: the component that it removes from each row of dq and dk, which are r (dy - y
    // (y.dy)): r (y.dy).
    std::vector<double> q_along, k_along;
};

// Whether gradients are supported: bad_input if q and k are repeated, because a key head's gradients then belong to
// several.
Status check_gradients(const GdnProblem& problem);

// `d_out` and `d_final_state` of the file; nullopt: it has neither. If only one is missing, it is 0. Errors are
// bad_input: a wrong shape or dtype.
Result<std::optional<GdnCotangents>> read_cotangents(const TensorFile& file, const GdnProblem& problem,
                                                     const GdnContract& contract);

// N(0, 1) for d_out and 0.1 N(0, 1) for d_final_state, exact in fp32; the same on every machine.
GdnCotangents random_cotangents(const GdnProblem& problem, std::uint64_t seed);

// Rounds d_out to the dtype of out if that has 16 bits, as automatic differentiation does. True: it changed.
bool round_cotangent(GdnCotangents& cotangents, DType out);

// `d_out` and `d_final_state` as float32 tensors in the contract's layout.
TensorFile cotangents_file(const GdnProblem& problem, const GdnContract& contract, const GdnCotangents& cotangents);

// `dq`, `dk`, `dv`, `dg`, `dbeta` (of log decay and beta at the operator) and `d_initial_state`. For other kinds of
// inputs also their gradients: `d_alpha`, or `d_a`, `d_A_log` and `d_dt_bias`, and `d_b` for a logit. `dq`, `dk` and
// `dv` have the dtype `wide`, the others `dtype`.
TensorFile gradients_file(const GdnProblem& problem, const GdnContract& contract, const GdnGradients& gradients,
                          DType wide, DType dtype);

}  // namespace gdnctl::oracle
