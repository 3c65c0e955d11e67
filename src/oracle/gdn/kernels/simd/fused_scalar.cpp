#include "oracle/gdn/kernels/simd/fused_body.h"

namespace gdnctl::oracle {

namespace {
using Sweep = FusedSweep<16, 1, 4>;
}

FusedKernel fused_scalar() {
    return {Sweep::k_columns, Sweep::scratch, [](const FusedTask& task) { Sweep(task).run(); }};
}

}  // namespace gdnctl::oracle
