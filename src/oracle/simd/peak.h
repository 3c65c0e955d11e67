// Measures the processor's peak fp32 multiply-adds and memory traffic: the ceilings of every kernel.
#pragma once

#include <cstddef>

namespace gdnctl::oracle {

// Runs `steps` steps of independent multiply-adds in registers; returns the number of floating-point operations.
double multiply_adds_scalar(std::size_t steps);
double multiply_adds_avx2(std::size_t steps);
double multiply_adds_avx512(std::size_t steps);

// Multiplies by -1 in place, to measure reading and writing memory.
void negate_scalar(float* values, std::size_t count);
void negate_avx2(float* values, std::size_t count);
void negate_avx512(float* values, std::size_t count);

}  // namespace gdnctl::oracle
