#include "oracle/kernels/simd/chunk_body.h"

namespace gdnctl::oracle {

namespace {
using Sweep = ChunkSweep<64, 8>;
}

ChunkKernel chunk_avx512() {
    return {Sweep::k_columns, Sweep::scratch, [](const ChunkTask& task) { Sweep(task).run(); }};
}

}  // namespace gdnctl::oracle
