// The instruction sets that kernels are compiled for. Each kernel exists once per entry. The widest one that the
// processor supports is chosen at run time, unless the caller names another.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace gdnctl::oracle {

enum class Isa {
    scalar,  // supported by every processor of the architecture
    avx2,    // AVX2 and FMA: 8 fp32 lanes
    avx512,  // AVX-512 F, VL, DQ, BW: 16 fp32 lanes
};

std::string_view name_of(Isa isa);  // "avx2"
// Whether this processor and this build support it; scalar is always supported.
bool has_isa(Isa isa);
Isa best_isa();
// All supported ones, narrowest first.
std::vector<Isa> available_isas();

// Measures the processor's peak fp32 multiply-adds and memory traffic: the ceilings of every kernel.

// Runs `steps` steps of independent multiply-adds in registers; returns the number of floating-point operations.
double multiply_adds_scalar(std::size_t steps);
double multiply_adds_avx2(std::size_t steps);
double multiply_adds_avx512(std::size_t steps);

// Multiplies by -1 in place, to measure reading and writing memory.
void negate_scalar(float* values, std::size_t count);
void negate_avx2(float* values, std::size_t count);
void negate_avx512(float* values, std::size_t count);

}  // namespace gdnctl::oracle
