#include "oracle/gdn/kernels/simd/adjoint_body.h"

namespace gdnctl::oracle {

void adjoint64_avx512(const AdjointPanel& panel) { AdjointSweep<64>(panel).run(); }

}  // namespace gdnctl::oracle
