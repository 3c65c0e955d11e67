// Decoding: a few tokens at a time on the caller's states. Its time is bound by moving the states, or by three
// multiply-adds per element of them.
#pragma once

#include <cstddef>

#include "oracle/gdn/kernels/forward32.h"
#include "oracle/simd/isa.h"

namespace gdnctl::oracle {

inline constexpr int k_decode_tokens = 8;  // maximum for one sequence in one step

// One step: for each sequence its tokens (at most 8), from initial_state to final_state, which may be the same array.
// Reads each state twice and writes it once. Results do not depend on the number of threads.
void decode_step(const Forward32& forward, int threads, Isa isa);

// How many of `threads` a step with this many sequences uses. Each must get a share of the states large enough to be
// worth handing over.
int decode_threads(const GdnDims& dims, std::size_t sequences, int threads);

}  // namespace gdnctl::oracle
