#include "oracle/gdn/kernels/simd/backward_body.h"

namespace gdnctl::oracle {

BackwardKernel backward_scalar() {
    return {BackwardData<16>::k_columns, BackwardData<16>::scratch,
            [](const BackwardTask& task) { BackwardSweep<16, 4>(task).run(); }};
}

}  // namespace gdnctl::oracle
