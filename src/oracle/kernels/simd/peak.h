// As many fp32 multiply-adds as the processor can do: the ceiling of every kernel.
#pragma once

#include <cstddef>

namespace gdnctl::oracle {

// Runs `steps` steps of independent multiply-adds in registers; returns the floating-point operations done.
double multiply_adds_scalar(std::size_t steps);
double multiply_adds_avx2(std::size_t steps);
double multiply_adds_avx512(std::size_t steps);

}  // namespace gdnctl::oracle
