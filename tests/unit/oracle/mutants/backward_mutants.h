// A chunked backward in fp32 with an optional fault at one term, and a list of such faults.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "unit/oracle/mutants/forward_mutants.h"

namespace gdnctl::oracle::testing {

// The terms of docs/reference/oracle-methods.md, "Chunked backward", in the order of its formulas.
enum class BackwardTerm {
    dU_intra,    // P^T dO
    dU_state,    // e^(c_last - c) K D
    solve,       // M^T in the solve for Y
    dP,          // tril(dO U^T)
    dM,          // -strict_tril(Y U^T)
    dV,          // beta Y
    dbeta_row,   // <Y, V - e^c K S>
    dbeta_gram,  // dM K K^T Gamma
    dQ_state,    // s e^c dO S^T
    dQ_intra,    // s (dP Gamma) K
    dK_state,    // e^(c_last - c) U D^T
    dK_forget,   // beta e^c Y S^T
    dK_intra,    // s (dP Gamma)^T Q
    dK_row,      // N K
    dK_column,   // N^T K
    dg_intra,    // dP P
    dg_solve,    // dM M
    dg_read,     // s e^c <Q, dO S^T>
    dg_forget,   // beta e^c <K, Y S^T>
    dg_insert,   // e^(c_last - c) <K, U D^T>
    dg_keep,     // e^c_last <D, S>
    dS_keep,     // e^c_last D
    dS_read,     // s (e^c Q)^T dO
    dS_forget,   // (beta e^c K)^T Y
    none,
};

enum class Dropped { nothing, decay, beta, scale };
enum class GateGradient { direct, running_sum, no_sum, forwards, exclusive };  // how dg is computed from its parts
enum class GroupGradient { sum, first, last, average };                        // over the value heads of a key head
enum class NormGradient { full, missing, no_projection };

struct BackwardFault {
    BackwardTerm term = BackwardTerm::none;
    double factor = 1;                   // on that term
    std::size_t period = 1;              // ... on every period-th of its values
    double ripple = 0;                   // ... and so much more or less of it, different at each value
    Dropped dropped = Dropped::nothing;  // a factor omitted from it
    GateGradient gates = GateGradient::direct;
    GroupGradient group = GroupGradient::sum;
    NormGradient norm = NormGradient::full;
    bool upper_triangle = false;                                    // dP is not masked
    bool carried = true;                                            // D is carried from chunk to chunk
    bool final_cotangent = true;                                    // D starts from the final state's gradient
    bool initial_state = true;                                      // the first chunk starts from S0
    bool bf16_operands = false;                                     // Y, U and D are rounded
    std::function<void(GdnGradients&, const GdnReference&)> after;  // damages the finished gradients
};

struct BackwardMutant {
    std::string name;
    std::vector<std::string> stages;  // any of these is right
    BackwardFault fault;
    bool whole_only = false;
};

std::vector<BackwardMutant> all_backward_mutants();
// Every term with faults that no hint knows.
std::vector<BackwardMutant> unexpected_backward_mutants();

// Gradients in fp32 by chunks of `chunk` tokens. `reference` must have its backward. The fault applies to the heads and
// the chunk in scope.
GdnGradients run_backward_chunks(const GdnReference& reference, const BackwardFault& fault, const MutantScope& scope,
                                 std::size_t chunk, int threads);

}  // namespace gdnctl::oracle::testing
