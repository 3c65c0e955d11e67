#include "oracle/kernels/simd/peak_body.h"

namespace gdnctl::oracle {

double multiply_adds_scalar(std::size_t steps) { return multiply_adds<16>(steps); }

}  // namespace gdnctl::oracle
