#include "oracle/gdn/kernels/simd/fused_body.h"

namespace gdnctl::oracle {

namespace {
using Sweep = FusedSweep<32, 1, 4>;
}

FusedKernel fused_avx2() {
    return {Sweep::k_columns, Sweep::scratch, [](const FusedTask& task) { Sweep(task).run(); }};
}

}  // namespace gdnctl::oracle
