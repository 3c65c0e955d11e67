#include "oracle/simd/peak_body.h"

namespace gdnctl::oracle {

double multiply_adds_avx512(std::size_t steps) { return multiply_adds<64>(steps); }
void negate_avx512(float* values, std::size_t count) { negate<64>(values, count); }

}  // namespace gdnctl::oracle
