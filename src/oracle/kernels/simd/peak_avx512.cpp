#include "oracle/kernels/simd/peak_body.h"

namespace gdnctl::oracle {

double multiply_adds_avx512(std::size_t steps) { return multiply_adds<64>(steps); }

}  // namespace gdnctl::oracle
