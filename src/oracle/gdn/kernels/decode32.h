// Decoding: a few tokens at a time on persistent states. Its time is bound by moving the states, or by three
// multiply-adds per element of them.
#pragma once

#include <cstddef>
#include <memory>

#include "oracle/gdn/kernels/forward32.h"
#include "oracle/simd/isa.h"

namespace gdnctl::oracle {

inline constexpr int k_decode_tokens = 8;  // maximum for one sequence in one step

// One step on the caller's states: for each sequence its tokens (at most 8), from initial_state to final_state, which
// may be the same array. Reads each state twice and writes it once. Results do not depend on the number of threads.
void decode_step(const Forward32& forward, int threads, Isa isa);

// How many of `threads` a step with this many sequences uses. Each must get a share of the states large enough to be
// worth handing over.
int decode_threads(const GdnDims& dims, std::size_t sequences, int threads);

// States of `sequences` sequences, with the writes of the last tokens kept separately. A step only reads a state.
// Writes are folded into it once several have accumulated: every second token (AVX-512: every fourth), or earlier if
// decays above 1 make it grow.
class DecodeCache {
public:
    // All states are 0.
    DecodeCache(const GdnDims& dims, HeadMap head_map, std::size_t sequences, Isa isa);
    DecodeCache(DecodeCache&&) noexcept;
    DecodeCache& operator=(DecodeCache&&) noexcept;
    ~DecodeCache();

    // Copies between these states and the caller's, [N, Hv, dk, dv]. Storing does not change the cache.
    void load(const float* states, int threads);
    void store(float* states, int threads) const;

    // Like decode_step, but ignores initial_state and final_state. Dims and head map must match the constructor's
    // (except B and T), and step.sequences its number of sequences. Steps of different lengths may follow each other.
    void step(const Forward32& step, int threads);

private:
    struct Arrays;
    std::unique_ptr<Arrays> m_arrays;
};

}  // namespace gdnctl::oracle
