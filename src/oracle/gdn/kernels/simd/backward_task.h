// The chunked backward; shared by its instruction sets. For the rows i, j of a chunk of 32 tokens, with S the state at
// its start, D the gradient of the state at its end, and Gam, M, P, c as in chunk_task.h:
//   dU = P^T dO + diag(e^(c_last - c)) K D,   (I + M)^T Y = dU,   dV = diag(beta) Y
//   dP = lower part of dO U^T,   dM = -strictly lower part of Y U^T,   N = diag(beta) (dM o Gam)
//   dQ = s diag(e^c) dO S^T + s (dP o Gam) K
//   dK = diag(e^(c_last - c)) U D^T - diag(beta e^c) Y S^T + s (dP o Gam)^T Q + (N + N^T) K
//   dbeta_i = <Y_i, V_i> - e^(c_i) <K_i, (Y S^T)_i> + sum over j of dM_ij (K K^T)_ij Gam_ij
//   dg_t = sum over i >= t > j of H_ij + sum over i >= t of a_i + sum over i < t of w_i + e^(c_last) <D, S>
//   with H = dP o P + dM o M,  a_i = e^(c_i) (s <Q_i, (dO S^T)_i> - beta_i <K_i, (Y S^T)_i>),
//   w_i = e^(c_last - c_i) <K_i, (U D^T)_i>
//   dS = e^(c_last) D + s (diag(e^c) Q)^T dO - (diag(beta e^c) K)^T Y
// Unlike a running sum of dL/dc, the sums of dg contain no difference of large terms.
#pragma once

#include <cstddef>

#include "oracle/simd/values.h"

namespace gdnctl::oracle {

inline constexpr std::size_t k_backward_chunk = 32;

// A key head and its value heads, [begin, end) of the task's.
struct BackwardKey {
    std::size_t head = 0, begin = 0, end = 0;
};

// Several key heads of one sequence with all their value heads. Gradients of q and k are summed inside a task, and rows
// of several heads share pages. Pointers are to the sequence's first token and the first head.
struct BackwardTask {
    ConstValues q;  // [tokens, Hk, dk]
    ConstValues k;
    ConstValues v;                         // [tokens, Hv, dv]
    const float* g = nullptr;              // [tokens, Hv]
    const float* beta = nullptr;           // [tokens, Hv]
    ConstValues u;                         // [tokens, Hv, dv], as saved by the forward: fp32
    const float* states = nullptr;         // [segments, Hv, dk, dv], likewise
    ConstValues d_out;                     // [tokens, Hv, dv]
    const float* d_final_state = nullptr;  // [Hv, dk, dv]; nullptr: zeros
    Values dq;
    Values dk_out;
    Values dv_out;
    float* dg = nullptr;
    float* dbeta = nullptr;
    float* d_initial_state = nullptr;  // [Hv, dk, dv]
    std::size_t tokens = 0, Hk = 0, Hv = 0, dk = 0, dv = 0;
    const BackwardKey* keys = nullptr;
    std::size_t key_count = 0;
    const std::size_t* value_heads = nullptr;
    std::size_t value_head_count = 0;
    std::size_t segment = 1;  // chunks between two saved states
    float scale = 0;
    bool normalise = false;  // q and k are multiplied by 1 / sqrt(|x|^2 + eps)
    float eps = 0;
    bool stream_out = false;   // use streaming stores for dq, dk and dv; they and their rows are then aligned to 64
                               // bytes
    float* scratch = nullptr;  // aligned to 64 bytes
};

struct BackwardKernel {
    std::size_t columns = 0;  // of a panel of v
    // Floats of scratch for a task.
    std::size_t (*scratch)(std::size_t dk, std::size_t dv, std::size_t value_heads, std::size_t segment) = nullptr;
    void (*run)(const BackwardTask& task) = nullptr;
};

BackwardKernel backward_scalar();
BackwardKernel backward_avx2();
BackwardKernel backward_avx512();

}  // namespace gdnctl::oracle
