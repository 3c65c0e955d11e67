#include "oracle/gdn/kernels/simd/adjoint_body.h"

namespace gdnctl::oracle {

void adjoint64_avx2(const AdjointPanel& panel) { AdjointSweep<32>(panel).run(); }

}  // namespace gdnctl::oracle
