#include "oracle/gdn/kernels/simd/backward_body.h"

namespace gdnctl::oracle {

BackwardKernel backward_avx2() {
    return {BackwardData<32>::k_columns, BackwardData<32>::scratch,
            [](const BackwardTask& task) { BackwardSweep<32, 4>(task).run(); }};
}

}  // namespace gdnctl::oracle
