// The fp32 backward on the caller's own arrays, from what a forward pass saved.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/forward32.h"
#include "oracle/simd/isa.h"

namespace gdnctl::oracle {

// Tokens of the backward's chunks, and of those of the forward that saves for it.
inline constexpr int k_backward_tokens = 32;
// Chunks between two saved states unless the caller chooses.
inline constexpr int k_segment_chunks = 8;

// What the backward needs of the forward: U (each token's write, beta_t (v_t - S^T k_t)) and the state at the start of
// every segment. Fewer segments save memory; the states inside a segment are computed again from U.
struct ForwardSaves {
    float* u = nullptr;       // [B*T, Hv, dv]
    float* states = nullptr;  // [segment_count(), Hv, dk, dv], those of one sequence together
    int segment_chunks = k_segment_chunks;
};

// Segments of all sequences; one without tokens has none.
std::size_t segment_count(std::span<const GdnSequence> sequences, int segment_chunks);

// The chunked forward with chunks of 32 tokens, which also writes `saves`. Results as chunk_forward's.
void saving_forward(const Forward32& forward, const ForwardSaves& saves, int threads, Isa isa);

// Arrays are row-major; axes as in gdn_problem.h. Outputs must not overlap anything else; rows outside every sequence
// are neither read nor written.
struct Backward32 {
    Forward32 inputs;                      // as the forward had them; out, final_state and initial_state are not used
    ForwardSaves saves;                    // read only
    ConstValues d_out;                     // [B*T, Hv, dv]; fp32 or bf16, as dq, dk and dv may be each
    const float* d_final_state = nullptr;  // [N, Hv, dk, dv]; nullptr: zeros
    Values dq;                             // [B*T, Hk, dk], through the l2norm, summed over the value heads
    Values dk;
    Values dv;                         // [B*T, Hv, dv]
    float* dg = nullptr;               // [B*T, Hv], of log decay
    float* dbeta = nullptr;            // [B*T, Hv]
    float* d_initial_state = nullptr;  // [N, Hv, dk, dv]
};

// Chunked, in segments from the last to the first. Results are bit-equal for any number of threads; instruction sets
// differ by rounding. The gradient of a gate whose exp is 0 in fp32 is 0. Some key heads of a sequence are one task; of
// a single one the value heads are a task each, with dq and dk of their own until the end.
// Scratch per thread: the states of one segment and one gradient for the value heads of these, and a few chunks of
// rows.
void chunk_backward(const Backward32& backward, int threads, Isa isa);

// Bytes that a forward and a backward pass need in all: inputs, outputs, cotangents, gradients, saves and scratch.
// nullopt: more than can be counted.
std::optional<std::size_t> training_memory(const GdnDims& dims, std::span<const GdnSequence> sequences,
                                           int segment_chunks, int threads);

// The gradients of a problem in fp32: saving forward and backward, then back through norm and gates in fp64. Arguments
// as run_adjoint64's. With bf16 storage (see storage_of) q, k and v are read, and dq, dk and dv written, as that, and
// so is d_out where `out` is bf16; but normalised keys that the contract rounds are fp32.
GdnGradients run_backward32(const GdnProblem& problem, const GdnContract& contract, const GdnCotangents& cotangents,
                            int threads, Isa isa = best_isa(), Storage storage = Storage::f32);

}  // namespace gdnctl::oracle
