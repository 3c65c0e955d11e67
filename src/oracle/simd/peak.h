// As many fp32 multiply-adds as the processor can do, and as many bytes: the ceilings of every kernel.
#pragma once

#include <cstddef>

namespace gdnctl::oracle {

// Runs `steps` steps of independent multiply-adds in registers; returns the floating-point operations done.
double multiply_adds_scalar(std::size_t steps);
double multiply_adds_avx2(std::size_t steps);
double multiply_adds_avx512(std::size_t steps);

// Multiplies by -1 in place: what reading and writing memory takes.
void negate_scalar(float* values, std::size_t count);
void negate_avx2(float* values, std::size_t count);
void negate_avx512(float* values, std::size_t count);

}  // namespace gdnctl::oracle
