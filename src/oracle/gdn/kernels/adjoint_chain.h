// From the gradients at the operator to those of the inputs as given; in fp64 for every kernel.
#pragma once

#include <vector>

#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/adjoint.h"

namespace gdnctl::oracle {

// For y = x / sqrt(|x|^2 + eps), dx = (dy - y (y.dy)) / sqrt(|x|^2 + eps); `gradient` itself without a norm. All
// [B*T, Hk, dk]. `along` gets the part that goes, y.dy / sqrt(|x|^2 + eps), by row.
std::vector<double> through_norm(const GdnProblem& problem, const GdnContract& contract,
                                 const std::vector<double>& given, const std::vector<double>& normalised,
                                 std::vector<double> gradient, std::vector<double>* along = nullptr);

// From dg and the log decay `g` that the operator had, under the contract's kind of gate: d_gate, and of raw gates
// dA_log and ddt_bias.
void through_gates(const GdnProblem& problem, const GdnContract& contract, const std::vector<double>& g,
                   GdnGradients& out);

// From dg and dbeta, with the log decay `g` and `beta` that the operator had: d_gate, d_logit, dA_log and ddt_bias. And
// d_initial_state is cleared for sequences without tokens, where the contract gives them a final state of zeros.
void finish_gradients(const GdnProblem& problem, const GdnContract& contract, const std::vector<double>& g,
                      const std::vector<double>& beta, GdnGradients& gradients);

}  // namespace gdnctl::oracle
