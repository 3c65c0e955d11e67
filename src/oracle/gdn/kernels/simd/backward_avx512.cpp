#include "oracle/gdn/kernels/simd/backward_body.h"

namespace gdnctl::oracle {

BackwardKernel backward_avx512() {
    return {BackwardData<64>::k_columns, BackwardData<64>::scratch,
            [](const BackwardTask& task) { BackwardSweep<64, 8>(task).run(); }};
}

}  // namespace gdnctl::oracle
