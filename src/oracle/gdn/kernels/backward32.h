// The fp32 backward on the caller's own arrays, using what a forward pass saved.
#pragma once

#include <cstddef>
#include <span>

#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/forward32.h"
#include "oracle/simd/isa.h"

namespace gdnctl::oracle {

// Chunk length of the backward, and of the forward that saves for it.
inline constexpr int k_backward_tokens = 32;
// Chunks between two saved states, unless the caller chooses.
inline constexpr int k_segment_chunks = 8;

// What the backward needs from the forward: U (each token's write, beta_t (v_t - S^T k_t)) and the state at the start
// of every segment. Fewer segments save memory; the states inside a segment are recomputed from U.
struct ForwardSaves {
    float* u = nullptr;       // [B*T, Hv, dv]
    float* states = nullptr;  // [segment_count(), Hv, dk, dv], those of one sequence together
    int segment_chunks = k_segment_chunks;
};

// Segments of all sequences; a sequence without tokens has none.
std::size_t segment_count(std::span<const GdnSequence> sequences, int segment_chunks);

// The chunked forward with chunks of 32 tokens, which also writes `saves`. Same results as chunk_forward.
void saving_forward(const Forward32& forward, const ForwardSaves& saves, int threads, Isa isa);

// Arrays are row-major; axes as in contract/problem.h. Outputs must not overlap anything else. Rows outside all
// sequences are neither read nor written.
struct Backward32 {
    Forward32 inputs;                      // as in the forward; out, final_state and initial_state are not used
    ForwardSaves saves;                    // read only
    ConstValues d_out;                     // [B*T, Hv, dv]; fp32 or bf16, independently of dq, dk and dv
    const float* d_final_state = nullptr;  // [N, Hv, dk, dv]; nullptr: zeros
    Values dq;                             // [B*T, Hk, dk], through the l2norm, summed over the value heads
    Values dk;
    Values dv;                         // [B*T, Hv, dv]
    float* dg = nullptr;               // [B*T, Hv], of log decay
    float* dbeta = nullptr;            // [B*T, Hv]
    float* d_initial_state = nullptr;  // [N, Hv, dk, dv]
};

// Chunked, in segments from the last to the first. Results are bit-equal for any number of threads; instruction sets
// differ by rounding. The gradient of a gate whose exp is 0 in fp32 is 0. A task is several key heads of a sequence. If
// there is only one key head, each of its value heads is a task, with its own dq and dk until the end.
// Scratch per thread: the states of one segment and one gradient for the task's value heads, and a few chunks of rows.
void chunk_backward(const Backward32& backward, int threads, Isa isa);

// The gradients of a problem in fp32: saving forward, backward, then through norm and gates in fp64. Arguments as in
// run_adjoint64. With bf16 storage (see storage_of), q, k and v are read and dq, dk and dv written as bf16; also d_out
// if `out` is bf16. Normalised keys that the contract rounds are fp32.
GdnGradients run_backward32(const GdnProblem& problem, const GdnContract& contract, const GdnCotangents& cotangents,
                            int threads, Isa isa = best_isa(), Storage storage = Storage::f32);

}  // namespace gdnctl::oracle
