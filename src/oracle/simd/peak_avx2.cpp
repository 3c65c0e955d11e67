#include "oracle/simd/peak_body.h"

namespace gdnctl::oracle {

double multiply_adds_avx2(std::size_t steps) { return multiply_adds<32>(steps); }
void negate_avx2(float* values, std::size_t count) { negate<32>(values, count); }

}  // namespace gdnctl::oracle
