// The chunked forward; shared by its instruction sets. For the rows i, j of a chunk, with S the state at its start:
//   Gam_ij = exp(c_i - c_j) for i >= j, c the running sum of g
//   M = strictly lower part of diag(beta) K K^T o Gam,   P = s * lower part of Q K^T o Gam
//   (I + M) U = diag(beta) (V - diag(e^c) K S)          by substitution, no inverse
//   O = s diag(e^c) Q S + P U,   S' = e^(c_last) S + K^T diag(e^(c_last - c)) U
// K K^T and Q K^T are shared by the value heads of a key head.
#pragma once

#include <cstddef>

#include "oracle/gdn/kernels/simd/fused_task.h"

namespace gdnctl::oracle {

// Decay of the rows of one chunk of one value head. c_i = high_i + low_i; a gate whose exp is 0 separates rows of
// different `stretch`.
struct ChunkDecay {
    float* high = nullptr;
    float* low = nullptr;
    float* stretch = nullptr;
    float* beta = nullptr;
    float* from_start = nullptr;  // e^c_i
    float* to_end = nullptr;      // e^(c_last - c_i)
    float whole = 1;              // e^c_last
};

struct ChunkTask {
    FusedTask what;  // units of one sequence; `scratch` has this kernel's size
    std::size_t chunk = 64;
    bool fp32_sums = false;  // gates are summed in fp32, as devices do
    // What a backward pass needs, if requested.
    float* u = nullptr;       // [tokens, Hv, dv]
    float* states = nullptr;  // [segments, Hv, dk, dv]: before every `segment` chunks
    std::size_t segment = 1;
    bool stream_saves = false;  // use streaming stores for these; they are then aligned
};

struct ChunkKernel {
    std::size_t columns = 0;  // of a panel
    std::size_t (*scratch)(std::size_t dk, std::size_t chunk, std::size_t units) = nullptr;
    void (*run)(const ChunkTask& task) = nullptr;
};

ChunkKernel chunk_scalar();
ChunkKernel chunk_avx2();
ChunkKernel chunk_avx512();

// Where the gates of a chunk's rows are.
struct ChunkGates {
    const float* g = nullptr;
    const float* beta = nullptr;
    std::size_t stride = 0;  // between rows
};

// Fills `decay` for `count` rows, and for rows up to `padded` such that they have no effect. With `fp32_sums`, gates
// are summed as on devices.
void chunk_decay(const ChunkGates& gates, bool fp32_sums, std::size_t count, std::size_t padded, ChunkDecay& decay);

}  // namespace gdnctl::oracle
