// Gradients of the operator in fp64, the truth for backward passes, and the last steps of every backward kernel.
#pragma once

#include <vector>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/simd/isa.h"

namespace gdnctl::oracle {

// The adjoint of the recurrence, with S recomputed between checkpoints every sqrt(T) tokens. Every product and sum is
// rounded separately, so the bits are the same for any number of threads and any instruction set. cotangents.d_out must
// have the size of v, a state cotangent that of the final state.
GdnGradients run_adjoint64(const GdnProblem& problem, const GdnContract& contract, const GdnCotangents& cotangents,
                           int threads, Isa isa = best_isa());

// Converts the gradients at the operator to those of the inputs as given, in fp64 for every kernel.

// For y = x / sqrt(|x|^2 + eps), dx = (dy - y (y.dy)) / sqrt(|x|^2 + eps); `gradient` itself without a norm. All [B*T,
// Hk, dk]. `along` gets the removed component, y.dy / sqrt(|x|^2 + eps), per row.
std::vector<double> through_norm(const GdnProblem& problem, const GdnContract& contract,
                                 const std::vector<double>& given, const std::vector<double>& normalised,
                                 std::vector<double> gradient, std::vector<double>* along = nullptr);

// Computes d_gate and, for raw gates, dA_log and ddt_bias, from dg and the operator's log decay `g`.
void through_gates(const GdnProblem& problem, const GdnContract& contract, const std::vector<double>& g,
                   GdnGradients& out);

// Computes d_gate, d_logit, dA_log and ddt_bias from dg and dbeta, with the operator's log decay `g` and `beta`. Also
// clears d_initial_state for sequences without tokens if the contract makes their final state zero.
void finish_gradients(const GdnProblem& problem, const GdnContract& contract, const std::vector<double>& g,
                      const std::vector<double>& beta, GdnGradients& gradients);

}  // namespace gdnctl::oracle
