#include "oracle/gdn/kernels/simd/recurrent_body.h"

namespace gdnctl::oracle {

void recurrent64_avx2(RecurrentPanel<double>& panel) { RecurrentSweep<double, 32>(panel).run(); }
void recurrent32_avx2(RecurrentPanel<float>& panel) { RecurrentSweep<float, 32>(panel).run(); }

}  // namespace gdnctl::oracle
