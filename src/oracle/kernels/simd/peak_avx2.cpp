#include "oracle/kernels/simd/peak_body.h"

namespace gdnctl::oracle {

double multiply_adds_avx2(std::size_t steps) { return multiply_adds<32>(steps); }

}  // namespace gdnctl::oracle
