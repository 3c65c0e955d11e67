// The chunked form whose matrix operands are rounded as a device's matrix unit rounds them.
#pragma once

#include "gdnctl/oracle/gdn_kernels.h"

namespace gdnctl::oracle {

// As run_chunk32, for any `options.matmul`.
GdnOutputs run_chunk_rounded(const GdnProblem& problem, const GdnContract& contract, const ChunkOptions& options,
                             int threads);

}  // namespace gdnctl::oracle
