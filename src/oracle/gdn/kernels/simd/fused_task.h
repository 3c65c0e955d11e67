// The fused forward; shared by its instruction sets.
//
// A block is two tokens (one if there are few registers). With S the state before the block and its decays
// alpha_0, alpha_1:
//   d_0 = beta_0 (v_0 - alpha_0 S^T k_0)
//   d_1 = beta_1 (v_1 - alpha_0 alpha_1 S^T k_1 - alpha_1 (k_0.k_1) d_0)
//   o_0 = s (alpha_0 S^T q_0 + (k_0.q_0) d_0)
//   o_1 = s (alpha_0 alpha_1 S^T q_1 + alpha_1 (k_0.q_1) d_0 + (k_1.q_1) d_1)
//   S'  = alpha_0 alpha_1 S + k_0 (alpha_1 d_0)^T + k_1 d_1^T
// This is the recurrence with two tokens written out. The stored state is S / sigma with one sigma per head, so that a
// block need not multiply the state by its decay: sigma absorbs it. Once sigma leaves 2^-20..2^20, the state is
// multiplied by it. For a decay of exactly 0, the state is multiplied by 0.
#pragma once

#include <cstddef>

#include "oracle/simd/values.h"

namespace gdnctl::oracle {

inline constexpr std::size_t k_fused_segment = 64;  // tokens whose K and Q are packed at once

// Factors of one block of one value head. One-token blocks only use the members with index 0.
struct FusedBlock {
    float beta[2];        // on v
    float from_state[2];  // on S^T k in d: -beta alpha sigma
    float d0_in_d1;
    float out_state[2];  // on S^T q in o
    float out_d0[2], out_d1;
    float write[2];  // on d in what is added to the stored state
    float keep;      // on the stored state; 1 except for the rare multiplication
};

// One panel of columns of one value head.
struct FusedUnit {
    std::size_t key_head = 0, value_head = 0, column = 0;
};

// Several units of one sequence; those of one key head are adjacent, as are those of one value head. Pointers are to
// the sequence's first token and head 0.
struct FusedTask {
    ConstValues q;  // [tokens, Hk, dk]
    ConstValues k;
    ConstValues v;                         // [tokens, Hv, dv]
    const float* g = nullptr;              // [tokens, Hv], log decay
    const float* beta = nullptr;           // [tokens, Hv]
    Values out;                            // [tokens, Hv, dv]
    const float* initial_state = nullptr;  // [Hv, dk, dv]; nullptr: zeros
    float* final_state = nullptr;          // [Hv, dk, dv]
    std::size_t tokens = 0, Hk = 0, Hv = 0, dk = 0, dv = 0;
    float scale = 0;
    bool normalise = false;  // q and k are multiplied by 1 / sqrt(|x|^2 + eps)
    float eps = 0;
    bool stream_out = false;  // use streaming stores for `out`; it is then aligned, and panels are whole lines
    const FusedUnit* units = nullptr;
    std::size_t unit_count = 0;
    float* scratch = nullptr;  // fused_scratch(dk, unit_count) floats, aligned to 64 bytes
};

// How a kernel of this instruction set splits a head, and what it needs.
struct FusedKernel {
    std::size_t columns = 0;  // of a panel
    std::size_t (*scratch)(std::size_t dk, std::size_t units) = nullptr;
    void (*run)(const FusedTask& task) = nullptr;
};

FusedKernel fused_scalar();
FusedKernel fused_avx2();
FusedKernel fused_avx512();

// The state of a head between segments.
struct FusedHead {
    double sigma = 1;
};

// Factors of the blocks of `count` tokens from `first`. dots: per block k_0.k_1, k_0.q_0, k_0.q_1, k_1.q_1. If a block
// has no second token, that one writes and reads nothing.
void fused_factors(const FusedTask& task, std::size_t value_head, std::size_t first, std::size_t count,
                   std::size_t tokens_a_block, const float* dots, FusedHead& head, FusedBlock* blocks);

}  // namespace gdnctl::oracle
