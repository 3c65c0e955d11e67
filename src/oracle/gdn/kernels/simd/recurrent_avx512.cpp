#include "oracle/gdn/kernels/simd/recurrent_body.h"

namespace gdnctl::oracle {

void recurrent64_avx512(RecurrentPanel<double>& panel) { RecurrentSweep<double, 64>(panel).run(); }
void recurrent32_avx512(RecurrentPanel<float>& panel) { RecurrentSweep<float, 64>(panel).run(); }

}  // namespace gdnctl::oracle
