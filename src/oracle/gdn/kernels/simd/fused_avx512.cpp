#include "oracle/gdn/kernels/simd/fused_body.h"

namespace gdnctl::oracle {

namespace {
using Sweep = FusedSweep<64, 2, 2>;
}

FusedKernel fused_avx512() {
    return {Sweep::k_columns, Sweep::scratch, [](const FusedTask& task) { Sweep(task).run(); }};
}

}  // namespace gdnctl::oracle
