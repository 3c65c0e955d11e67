#include "oracle/kernels/simd/chunk_body.h"

namespace gdnctl::oracle {

namespace {
using Sweep = ChunkSweep<16, 4>;
}

ChunkKernel chunk_scalar() {
    return {Sweep::k_columns, Sweep::scratch, [](const ChunkTask& task) { Sweep(task).run(); }};
}

}  // namespace gdnctl::oracle
