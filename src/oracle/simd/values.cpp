#include "oracle/simd/values.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace gdnctl::oracle {

namespace {

constexpr unsigned k_half = 16;  // bits

}  // namespace

std::size_t size_of(Storage storage) { return storage == Storage::bf16 ? sizeof(Bf16) : sizeof(float); }

ConstValues operator+(const ConstValues& values, std::size_t n) {
    ConstValues result = values;
    if (values.data != nullptr) result.data = static_cast<const char*>(values.data) + n * size_of(values.storage);
    return result;
}

Values operator+(const Values& values, std::size_t n) {
    Values result = values;
    if (values.data != nullptr) result.data = static_cast<char*>(values.data) + n * size_of(values.storage);
    return result;
}

float widened(Bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << k_half); }

Bf16 narrowed(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    // A NaN whose payload is only in the lower half would become infinity.
    if (std::isnan(x)) return static_cast<Bf16>(bits >> k_half | 0x40U);
    return static_cast<Bf16>((bits + 0x7fffU + (bits >> k_half & 1U)) >> k_half);
}

float rounded_to_tf32(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if (!std::isfinite(x)) return x;
    return std::bit_cast<float>((bits + 0xfffU + (bits >> 13U & 1U)) & 0xffffe000U);
}

void widen(const ConstValues& from, std::size_t at, std::size_t count, float* to) {
    if (from.storage == Storage::f32) {
        std::copy_n(static_cast<const float*>(from.data) + at, count, to);
        return;
    }
    const Bf16* values = static_cast<const Bf16*>(from.data) + at;
    for (std::size_t i = 0; i < count; ++i) to[i] = widened(values[i]);
}

}  // namespace gdnctl::oracle
