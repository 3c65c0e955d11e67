// Loads and stores of tensors that the caller keeps as fp32 or bf16. Costs one branch per vector, which always goes the
// same way.
#pragma once

#include "oracle/simd/values.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle {
namespace {

template <int Bytes>
struct HalfOf {
    typedef std::uint16_t type __attribute__((vector_size(Bytes / 2)));
    typedef std::uint16_t unaligned __attribute__((vector_size(Bytes / 2), aligned(sizeof(std::uint16_t)), may_alias));
    typedef std::uint32_t bits __attribute__((vector_size(Bytes)));
};

template <int Bytes>
inline typename VectorOf<float, Bytes>::type widened_vector(const Bf16* from) {
    using Bits = typename HalfOf<Bytes>::bits;
    const typename HalfOf<Bytes>::type half = *reinterpret_cast<const typename HalfOf<Bytes>::unaligned*>(from);
    return (typename VectorOf<float, Bytes>::type)(__builtin_convertvector(half, Bits) << 16);
}

// To nearest even; NaN stays NaN.
template <int Bytes>
inline typename HalfOf<Bytes>::type narrowed_vector(typename VectorOf<float, Bytes>::type x) {
    using Bits = typename HalfOf<Bytes>::bits;
    const Bits bits = (Bits)x;
    const Bits rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const Bits nan = (bits >> 16) | 0x40U;
    const Bits largest = 0x7f800000U - Bits{};
    return __builtin_convertvector((bits & 0x7fffffffU) <= largest ? rounded : nan, typename HalfOf<Bytes>::type);
}

inline std::size_t element_size(Storage storage) { return storage == Storage::bf16 ? 2 : 4; }
inline const char* address_of(const ConstValues& x, std::size_t at) {
    return static_cast<const char*>(x.data) + at * element_size(x.storage);
}

template <int Bytes>
inline typename VectorOf<float, Bytes>::type load(const ConstValues& x, std::size_t at) {
    if (x.storage == Storage::bf16) return widened_vector<Bytes>(static_cast<const Bf16*>(x.data) + at);
    return load<float, Bytes>(static_cast<const float*>(x.data) + at);
}

template <int Bytes>
inline void store(const Values& x, std::size_t at, typename VectorOf<float, Bytes>::type value) {
    if (x.storage == Storage::bf16) {
        Bf16* to = static_cast<Bf16*>(x.data) + at;
        *reinterpret_cast<typename HalfOf<Bytes>::unaligned*>(to) = narrowed_vector<Bytes>(value);
    } else {
        store<float, Bytes>(static_cast<float*>(x.data) + at, value);
    }
}

// A streaming store; `to` is aligned to the vector as stored.
template <int Bytes>
inline void stream(const Values& x, std::size_t at, typename VectorOf<float, Bytes>::type value) {
    if (x.storage == Storage::f32) return stream<Bytes>(static_cast<float*>(x.data) + at, value);
    [[maybe_unused]] Bf16* to = static_cast<Bf16*>(x.data) + at;
    [[maybe_unused]] const auto half = narrowed_vector<Bytes>(value);
#if defined(__AVX__)
    if constexpr (Bytes == 64) return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)half);
#endif
#if defined(__SSE2__)
    if constexpr (Bytes == 32) return _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)half);
#endif
    store<Bytes>(x, at, value);
}

inline float value_at(const ConstValues& x, std::size_t at) {
    if (x.storage == Storage::f32) return static_cast<const float*>(x.data)[at];
    const std::uint32_t bits = static_cast<std::uint32_t>(static_cast<const Bf16*>(x.data)[at]) << 16;
    float value = 0;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

inline void set_value(const Values& x, std::size_t at, float value) {
    if (x.storage == Storage::f32) {
        static_cast<float*>(x.data)[at] = value;
        return;
    }
    std::uint32_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof bits);
    const bool number = (bits & 0x7fffffffU) <= 0x7f800000U;
    const std::uint32_t rounded = number ? (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16 : bits >> 16 | 0x40U;
    static_cast<Bf16*>(x.data)[at] = static_cast<Bf16>(rounded);
}

// Not inlined, so that loops for fp32 rows are compiled as if this case did not exist.
template <int Bytes>
__attribute__((noinline)) const float* widened_row(const ConstValues& x, std::size_t at, std::size_t count,
                                                   float* room) {
    constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    std::size_t i = 0;
    for (; i + k_lanes <= count; i += k_lanes) store<float, Bytes>(room + i, load<Bytes>(x, at + i));
    for (; i < count; ++i) room[i] = value_at(x, at + i);
    return room;
}

// Elements [at, at + count) of a row as fp32: in place, or in `room`.
template <int Bytes>
inline const float* row_of(const ConstValues& x, std::size_t at, std::size_t count, float* room) {
    if (x.storage == Storage::f32) return static_cast<const float*>(x.data) + at;
    return widened_row<Bytes>(x, at, count, room);
}

}  // namespace
}  // namespace gdnctl::oracle
