// The context of measured times: the machine, the matrix product, and the memory used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/timing/rounds.h"
#include "oracle/simd/isa.h"

namespace gdnctl::harness {

struct Machine {
    std::string cpu;
    std::string compiler;
    double load = 0;
};
Machine this_machine();

inline constexpr int k_sgemm_size = 2048;

struct SgemmSubject {
    Subject subject;  // of matrices that it keeps
    std::string library;
};
// The matrix product of OpenBLAS with kernels for `isa`. Error: there is none.
Result<SgemmSubject> sgemm_subject(oracle::Isa isa, int threads);

// The most memory that this process had since it was last asked to forget; nullopt: this system does not say.
std::optional<std::int64_t> peak_rss();
void forget_peak_rss();

}  // namespace gdnctl::harness
