#include "oracle/simd/peak_body.h"

namespace gdnctl::oracle {

double multiply_adds_scalar(std::size_t steps) { return multiply_adds<16>(steps); }
void negate_scalar(float* values, std::size_t count) { negate<16>(values, count); }

}  // namespace gdnctl::oracle
