// Vectors in the compiler's own types. Only files of this folder include it. Each is compiled for one instruction set,
// so neither this header nor the kernel bodies may have an inline function whose name another file could share: the
// linker keeps one copy of such a function, perhaps the one with the wrong instructions. Hence the unnamed namespaces,
// and no standard library.
#pragma once

#include <cstddef>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace gdnctl::oracle {
namespace {

template <class Real, int Bytes>
struct VectorOf {
    typedef Real type __attribute__((vector_size(Bytes)));
    typedef Real unaligned __attribute__((vector_size(Bytes), aligned(sizeof(Real)), may_alias));
    static constexpr std::size_t k_lanes = Bytes / sizeof(Real);
};

// Works at any address; aligned loads cost nothing extra.
template <class Real, int Bytes>
inline typename VectorOf<Real, Bytes>::type load(const Real* from) {
    return *reinterpret_cast<const typename VectorOf<Real, Bytes>::unaligned*>(from);
}

template <class Real, int Bytes>
inline void store(Real* to, typename VectorOf<Real, Bytes>::type x) {
    *reinterpret_cast<typename VectorOf<Real, Bytes>::unaligned*>(to) = x;
}

// Broadcasts one value as part of the load. The compiler might use a shuffle instead, which competes with the
// multiply-adds for their ports.
template <int Bytes>
inline typename VectorOf<float, Bytes>::type broadcast(const float* from) {
#if defined(__AVX512F__)
    if constexpr (Bytes == 64) {
        __m512 x;
        __asm__("vbroadcastss %1, %0" : "=v"(x) : "m"(*from));
        return (typename VectorOf<float, Bytes>::type)x;
    }
#endif
#if defined(__AVX__)
    if constexpr (Bytes == 32) return (typename VectorOf<float, Bytes>::type)_mm256_broadcast_ss(from);
#endif
    return *from - typename VectorOf<float, Bytes>::type{};
}

// A streaming store, which bypasses the caches; `to` is aligned to the vector.
template <int Bytes>
inline void stream(float* to, typename VectorOf<float, Bytes>::type x) {
#if defined(__AVX512F__)
    if constexpr (Bytes == 64) return _mm512_stream_ps(to, (__m512)x);
#endif
#if defined(__AVX__)
    if constexpr (Bytes == 32) return _mm256_stream_ps(to, (__m256)x);
#endif
#if defined(__SSE2__)
    if constexpr (Bytes == 16) return _mm_stream_ps(to, (__m128)x);
#endif
    store<float, Bytes>(to, x);
}

// exp to within 2 units in the last place; 0 below -103, infinity above 88.8.
template <int Bytes>
inline typename VectorOf<float, Bytes>::type exponential(typename VectorOf<float, Bytes>::type x) {
    using Vector = typename VectorOf<float, Bytes>::type;
    typedef int Integers __attribute__((vector_size(Bytes)));
    const Vector lowest = -104.0F - Vector{};
    const Vector highest = 89.0F - Vector{};
    x = x < lowest ? lowest : x;
    x = x > highest ? highest : x;
    // x = n log 2 + r, |r| <= log(2) / 2; 1.5 * 2^23 rounds to an integer.
    const Vector shifted = x * 1.44269504F + 12582912.0F;
    const Vector n = shifted - 12582912.0F;
    const Vector r = (x - n * 0.693145752F) - n * 1.42860677e-6F;
    Vector p = r * 1.38888889e-3F + 8.33333333e-3F;
    p = p * r + 4.16666667e-2F;
    p = p * r + 1.66666667e-1F;
    p = p * r + 0.5F;
    p = p * r * r + r + 1.0F;
    // 2^n in two factors, because n may exceed the range of one exponent.
    const Integers whole = __builtin_convertvector(n, Integers);
    const Integers half = whole / 2;
    const Integers low = (half + 127) << 23;
    const Integers high = (whole - half + 127) << 23;
    return p * (Vector)low * (Vector)high;
}

// Makes streaming stores visible to other threads.
inline void end_of_stream() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

}  // namespace
}  // namespace gdnctl::oracle
