// Decoding: a few tokens at a time against states that stay. Bound by moving the states, or by three multiply-adds an
// element of them.
#pragma once

#include <cstddef>
#include <memory>

#include "oracle/gdn/kernels/forward32.h"
#include "oracle/simd/isa.h"

namespace gdnctl::oracle {

inline constexpr int k_decode_tokens = 8;  // at most, of one sequence in one step

// One step on the caller's states: for each sequence its tokens (at most 8), from initial_state to final_state, which
// may be the same array. A state is read, read again and written. Results do not depend on the number of threads.
void decode_step(const Forward32& forward, int threads, Isa isa);

// The threads of `threads` that a step of so many sequences runs on: none whose share of the states would pass sooner
// than it is handed over.
int decode_threads(const GdnDims& dims, std::size_t sequences, int threads);

// States of `sequences` sequences, with the writes of the last tokens beside them: a step reads a state, and only when
// some have gathered puts them into it. So a state is written once in two tokens (AVX-512: four), or earlier where
// decays above 1 make it grow.
class DecodeCache {
public:
    // All states are 0.
    DecodeCache(const GdnDims& dims, HeadMap head_map, std::size_t sequences, Isa isa);
    DecodeCache(DecodeCache&&) noexcept;
    DecodeCache& operator=(DecodeCache&&) noexcept;
    ~DecodeCache();

    // Between these states and the caller's, [N, Hv, dk, dv]. Storing changes nothing of the cache.
    void load(const float* states, int threads);
    void store(float* states, int threads) const;

    // One step: as decode_step, but that initial_state and final_state are not used. Dims and head map must be those of
    // the constructor (B and T aside), step.sequences as many as there. Steps of different lengths may follow each
    // other.
    void step(const Forward32& step, int threads);

private:
    struct Arrays;
    std::unique_ptr<Arrays> m_arrays;
};

}  // namespace gdnctl::oracle
