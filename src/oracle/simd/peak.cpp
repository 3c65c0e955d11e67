// Loops that measure the machine: multiply-adds at their peak, and reading and writing memory.
#include "oracle/simd/isa.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle {
namespace {

template <int Bytes>
double multiply_adds(std::size_t steps) {
    using Vector = typename VectorOf<float, Bytes>::type;
    // Needs latency times ports: 4 * 2 is enough on every processor of the last ten years; 12 leaves room.
    constexpr std::size_t k_chains = 12;
    const Vector factor = 0.5F - Vector{};
    const Vector addend = 1.0F - Vector{};
    // Different values; otherwise the compiler would merge the chains.
    Vector x[k_chains];
    for (std::size_t c = 0; c < k_chains; ++c) x[c] = static_cast<float>(c) - Vector{};
    for (std::size_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
        for (std::size_t c = 0; c < k_chains; ++c) x[c] = x[c] * factor + addend;
    }
    // All converge to 2. The result is used, so that nothing is optimised away, and no value is denormal.
    for (std::size_t c = 0; c < k_chains; ++c) {
        if (steps > 0 && x[c][0] < 1) return 0;
    }
    return 2.0 * static_cast<double>(k_chains * VectorOf<float, Bytes>::k_lanes) * static_cast<double>(steps);
}

template <int Bytes>
void negate(float* values, std::size_t count) {
    constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    constexpr std::size_t k_block = 4 * k_lanes;
    std::size_t i = 0;
    for (; i + k_block <= count; i += k_block) {
        for (std::size_t v = 0; v < k_block; v += k_lanes) {
            store<float, Bytes>(values + i + v, -load<float, Bytes>(values + i + v));
        }
    }
    for (; i < count; ++i) values[i] = -values[i];
}

}  // namespace

double GDNCTL_KERNEL(multiply_adds)(std::size_t steps) { return multiply_adds<GDNCTL_BYTES>(steps); }
void GDNCTL_KERNEL(negate)(float* values, std::size_t count) { negate<GDNCTL_BYTES>(values, count); }

}  // namespace gdnctl::oracle
