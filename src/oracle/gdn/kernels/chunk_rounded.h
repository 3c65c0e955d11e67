// Kernel forms that round matrix operands, or the state, as a device does.
#pragma once

#include "oracle/gdn/kernels/kernels.h"

namespace gdnctl::oracle {

// Like run_chunk32, for any `options.matmul`.
GdnOutputs run_chunk_rounded(const GdnProblem& problem, const GdnContract& contract, const ChunkOptions& options,
                             int threads);

// The fp32 recurrence with the state rounded to bf16 after each token.
GdnOutputs run_recurrent_rounded(const GdnProblem& problem, const GdnContract& contract, int threads);

}  // namespace gdnctl::oracle
