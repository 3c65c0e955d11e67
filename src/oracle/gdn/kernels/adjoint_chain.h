// Converts the gradients at the operator to those of the inputs as given, in fp64 for every kernel.
#pragma once

#include <vector>

#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/adjoint.h"

namespace gdnctl::oracle {

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
