// Gradients and cotangents in tensor files.
#pragma once

#include <cstdint>
#include <optional>

#include "core/result.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

// `d_out` and `d_final_state` of the file; nullopt when it has neither. One that is missing beside the other is 0.
// Errors are bad_input: a wrong shape or dtype.
// Whether gradients can be told: bad_input where q and k are repeated, because those of a key head belong to several.
Status check_gradients(const GdnProblem& problem);

Result<std::optional<GdnCotangents>> read_cotangents(const TensorFile& file, const GdnProblem& problem,
                                                     const GdnContract& contract);

// N(0, 1) for d_out and 0.1 N(0, 1) for d_final_state, exact in fp32; the same on every machine.
GdnCotangents random_cotangents(const GdnProblem& problem, std::uint64_t seed);

// Rounds d_out to the dtype of out where that has 16 bits: automatic differentiation hands it on so. True: it changed.
bool round_cotangent(GdnCotangents& cotangents, DType out);

// `d_out` and `d_final_state` as float32 tensors in the contract's layout.
TensorFile cotangents_file(const GdnProblem& problem, const GdnContract& contract, const GdnCotangents& cotangents);

// `dq`, `dk`, `dv`, `dg`, `dbeta` (of log decay and beta at the operator) and `d_initial_state`; where the inputs are
// something else, their gradients too: `d_alpha`, or `d_a`, `d_A_log` and `d_dt_bias`, and `d_b` for a logit. `wide` is
// the dtype of `dq`, `dk` and `dv`, `dtype` that of the others.
TensorFile gradients_file(const GdnProblem& problem, const GdnContract& contract, const GdnGradients& gradients,
                          DType wide, DType dtype);

}  // namespace gdnctl::oracle
