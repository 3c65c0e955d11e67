// The fp32 forward kernels on the caller's own arrays. No tensor is copied or converted as a whole.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "oracle/gdn/contract/problem.h"
#include "oracle/simd/isa.h"
#include "oracle/simd/values.h"

namespace gdnctl::oracle {

// Arrays are row-major; axes as in contract/problem.h. `out` must not overlap the inputs; final_state may be
// initial_state. Tokens outside all sequences are neither read nor written.
struct Forward32 {
    GdnDims dims;
    std::span<const GdnSequence> sequences;
    HeadMap head_map = HeadMap::interleaved;  // equal is interleaved with Hk = Hv
    ConstValues q;                            // [B*T, Hk, dk]; fp32 or bf16, independently of k, v and out
    ConstValues k;
    ConstValues v;                         // [B*T, Hv, dv]
    const float* g = nullptr;              // [B*T, Hv], log decay; -inf is allowed
    const float* beta = nullptr;           // [B*T, Hv]
    const float* initial_state = nullptr;  // [N, Hv, dk, dv]; nullptr: zeros
    Values out;                            // [B*T, Hv, dv]
    float* final_state = nullptr;          // [N, Hv, dk, dv]
    float scale = 1;                       // factor on q
    std::optional<float> l2norm_eps;       // q and k are divided by sqrt(|x|^2 + eps)
};

// How the chunk kernel sums gates inside a chunk.
enum class GateSum {
    fp64_with_resets,  // fp64 sums; a gate whose exp is 0 in fp32 starts a new stretch instead of being added
    fp32,              // as devices do; only gates beyond -2e4, where that breaks down, start a new stretch
};

// The fused recurrence. Results are bit-equal for any number of threads; instruction sets differ by rounding. A
// sequence without tokens passes its state through. Scratch: one copy of the state, and 64 tokens of q and k per
// thread.
void fused_forward(const Forward32& forward, int threads, Isa isa);

// The chunked form with forward substitution; K K^T and Q K^T are computed once for all value heads of a key head.
// Scratch: one copy of the state, and per thread 4 dk + 4 chunk values for each row of a chunk.
void chunk_forward(const Forward32& forward, int chunk, GateSum gate_sum, int threads, Isa isa);

}  // namespace gdnctl::oracle
