#include "oracle/gdn/kernels/simd/adjoint_body.h"

namespace gdnctl::oracle {

void adjoint64_scalar(const AdjointPanel& panel) { AdjointSweep<16>(panel).run(); }

}  // namespace gdnctl::oracle
