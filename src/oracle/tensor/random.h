// Random numbers that are the same on every machine.
#pragma once

#include <cstdint>

namespace gdnctl::oracle {

// SplitMix64 (Steele, Lea, Flood 2014): a counter and a mixing function.
class Random {
public:
    // Streams of one seed with different names are independent.
    Random(std::uint64_t seed, std::uint64_t stream) : m_state(mix(mix(seed) ^ (stream * k_step))) {}

    std::uint64_t bits() { return mix(m_state += k_step); }
    // [0, 1), a multiple of 2^-24: exact in fp32.
    double uniform() { return static_cast<double>(bits() >> 40U) * 0x1p-24; }
    double uniform(double low, double high) { return low + (high - low) * uniform(); }
    // Nearly N(0, 1): 12 uniforms minus 6, in integers, so that rounding does not depend on the machine. |x| < 6.
    double normal() {
        std::int64_t sum = 0;
        for (int i = 0; i < 6; ++i) {
            const std::uint64_t two = bits();
            sum += static_cast<std::int64_t>(two >> 32U) + static_cast<std::int64_t>(two & 0xFFFFFFFFU);
        }
        return static_cast<double>(sum - 6 * (std::int64_t{1} << 32U)) * 0x1p-32;
    }

private:
    static constexpr std::uint64_t k_step = 0x9E3779B97F4A7C15ULL;
    static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
        return z ^ (z >> 31U);
    }

    std::uint64_t m_state;
};

}  // namespace gdnctl::oracle
