#include "oracle/gdn/kernels/simd/recurrent_body.h"

namespace gdnctl::oracle {

void recurrent64_scalar(RecurrentPanel<double>& panel) { RecurrentSweep<double, 16>(panel).run(); }
void recurrent32_scalar(RecurrentPanel<float>& panel) { RecurrentSweep<float, 16>(panel).run(); }

}  // namespace gdnctl::oracle
