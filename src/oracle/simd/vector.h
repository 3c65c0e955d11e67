// Vectors in the compiler's own types. Only sources that are compiled once per instruction set include this file,
// so neither this header nor the kernel bodies may have an inline function whose name another file could share: the
// linker keeps one copy of such a function, perhaps the one with the wrong instructions. Hence the unnamed namespaces,
// and no standard library.
#pragma once

#include <cstddef>

#include "oracle/simd/values.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

// See CMakeLists.txt: GDNCTL_KERNEL(decode) is decode_avx2 where a source is compiled for AVX2.
#define GDNCTL_KERNEL(name) GDNCTL_KERNEL_OF(name, GDNCTL_ISA)
#define GDNCTL_KERNEL_OF(name, isa) GDNCTL_JOINED(name, isa)
#define GDNCTL_JOINED(name, isa) name##_##isa

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

namespace gdnctl::oracle {

// Loads and stores of tensors that the caller keeps as fp32 or bf16. Costs one branch per vector, which always goes the
// same way.

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

// Tiles of Rows x Vectors whose sums stay in registers, and other operations on whole vectors: transposes, row sums.

namespace {

template <std::size_t... I>
struct LaneList {};
template <std::size_t Count>
struct LanesOf;
template <>
struct LanesOf<4> {
    using type = LaneList<0, 1, 2, 3>;
};
template <>
struct LanesOf<8> {
    using type = LaneList<0, 1, 2, 3, 4, 5, 6, 7>;
};
template <>
struct LanesOf<16> {
    using type = LaneList<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
};

// Where a factor of a tile is: row y of step x is at x * step + y * row.
struct Factors {
    const float* at;
    std::size_t step, row;
};

// The vectors that the factors multiply: those of step x start at x * step.
struct Rows {
    const float* at;
    std::size_t step;
};

template <int Bytes, std::size_t Height, std::size_t Vectors>
struct Tile {
    using Vector = typename VectorOf<float, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;

    Vector at[Height][Vectors];

    void clear() {
        for (std::size_t y = 0; y < Height; ++y) {
            for (std::size_t v = 0; v < Vectors; ++v) at[y][v] = Vector{};
        }
    }

    // at[y] += a[x][y] b[x], summed over x < count, for the vectors [From, To). Subtracts with Sign -1.
    template <int Sign = 1, std::size_t From = 0, std::size_t To = Vectors>
    __attribute__((always_inline)) void add(Factors a, Rows b, std::size_t count) {
        Vector sum[Height][Vectors];
        for (std::size_t y = 0; y < Height; ++y) {
            for (std::size_t v = From; v < To; ++v) sum[y][v] = at[y][v];
        }
        for (std::size_t x = 0; x < count; ++x, a.at += a.step, b.at += b.step) {
            Vector row[Vectors];
            for (std::size_t v = From; v < To; ++v) row[v] = load<float, Bytes>(b.at + v * k_lanes);
#pragma GCC unroll 8
            for (std::size_t y = 0; y < Height; ++y) {
                const Vector factor = broadcast<Bytes>(a.at + y * a.row);
                for (std::size_t v = From; v < To; ++v) {
                    if constexpr (Sign > 0) {
                        sum[y][v] += factor * row[v];
                    } else {
                        sum[y][v] -= factor * row[v];
                    }
                }
            }
        }
        for (std::size_t y = 0; y < Height; ++y) {
            for (std::size_t v = From; v < To; ++v) at[y][v] = sum[y][v];
        }
    }

    void take(const float* from, std::size_t stride) {
        for (std::size_t y = 0; y < Height; ++y) {
            for (std::size_t v = 0; v < Vectors; ++v) at[y][v] = load<float, Bytes>(from + y * stride + v * k_lanes);
        }
    }

    void keep(float* to, std::size_t stride) const {
        for (std::size_t y = 0; y < Height; ++y) {
            for (std::size_t v = 0; v < Vectors; ++v) store<float, Bytes>(to + y * stride + v * k_lanes, at[y][v]);
        }
    }

    // Lane by lane.
    void scale_columns(const float* factors) {
        for (std::size_t v = 0; v < Vectors; ++v) {
            const Vector factor = load<float, Bytes>(factors + v * k_lanes);
            for (std::size_t y = 0; y < Height; ++y) at[y][v] *= factor;
        }
    }

    // sums[lane] += sum over y of other[y][lane] * at[y][lane]
    void dot_columns(const float* other, std::size_t stride, float* sums) const {
        for (std::size_t v = 0; v < Vectors; ++v) {
            Vector sum = load<float, Bytes>(sums + v * k_lanes);
            for (std::size_t y = 0; y < Height; ++y) {
                sum += load<float, Bytes>(other + y * stride + v * k_lanes) * at[y][v];
            }
            store<float, Bytes>(sums + v * k_lanes, sum);
        }
    }
};

// Of the Step x Step blocks that make up two rows, exchanges the off-diagonal one of each.
template <std::size_t Step, class Vector, std::size_t... I>
inline void exchange(Vector& a, Vector& b, LaneList<I...>) {
    constexpr std::size_t n = sizeof...(I);
    const Vector low = __builtin_shufflevector(a, b, ((I & Step) == 0 ? I : I - Step + n)...);
    const Vector high = __builtin_shufflevector(a, b, ((I & Step) == 0 ? I + Step : I + n)...);
    a = low;
    b = high;
}

template <std::size_t Step, class Vector, std::size_t Count>
inline void transpose_steps(Vector (&x)[Count]) {
    if constexpr (Step < Count) {
#pragma GCC unroll 16
        for (std::size_t i = 0; i < Count; ++i) {
            if ((i & Step) == 0) exchange<Step>(x[i], x[i + Step], typename LanesOf<Count>::type{});
        }
        transpose_steps<Step * 2>(x);
    }
}

// to[j][i] = from[i][j] for a block of lanes x lanes.
template <int Bytes>
inline void transpose_block(const float* from, std::size_t from_stride, float* to, std::size_t to_stride) {
    constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    typename VectorOf<float, Bytes>::type x[k_lanes];
    for (std::size_t i = 0; i < k_lanes; ++i) x[i] = load<float, Bytes>(from + i * from_stride);
    transpose_steps<1>(x);
    for (std::size_t i = 0; i < k_lanes; ++i) store<float, Bytes>(to + i * to_stride, x[i]);
}

// The same for rows x columns, both multiples of the lanes.
template <int Bytes>
inline void transpose(const float* from, std::size_t from_stride, float* to, std::size_t to_stride, std::size_t rows,
                      std::size_t columns) {
    constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    for (std::size_t j = 0; j < columns; j += k_lanes) {
        for (std::size_t i = 0; i < rows; i += k_lanes) {
            transpose_block<Bytes>(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
        }
    }
}

// to[i] = the sum of the lanes of row i, for `rows` rows of one vector each; `rows` is a multiple of the lanes.
template <int Bytes>
inline void sum_rows(const float* from, float* to, std::size_t rows) {
    constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    using Vector = typename VectorOf<float, Bytes>::type;
    for (std::size_t i = 0; i < rows; i += k_lanes) {
        Vector x[k_lanes];
        for (std::size_t y = 0; y < k_lanes; ++y) x[y] = load<float, Bytes>(from + (i + y) * k_lanes);
        transpose_steps<1>(x);
        Vector sum = x[0];
        for (std::size_t y = 1; y < k_lanes; ++y) sum += x[y];
        store<float, Bytes>(to + i, sum);
    }
}

// 0, 1, 2, ...
template <class Vector, std::size_t... I>
inline Vector counting(LaneList<I...>) {
    return Vector{static_cast<float>(I)...};
}

}  // namespace

// Prefetches memory a few lines at a time during other computations.

namespace {

class Prefetch {
public:
    void clear() { m_count = m_at = m_column = m_lines = 0; }

    // Rows of `width` elements of `element` bytes each, `stride` elements apart.
    void add(const void* from, std::size_t element, std::size_t stride, std::size_t rows, std::size_t width) {
        if (m_count == k_most || rows * width == 0) return;
        m_blocks[m_count++] = {static_cast<const char*>(from), stride * element, rows, width * element};
        m_lines += rows * ((width * element + k_line - 1) / k_line);
    }

    // Spreads the prefetches over `calls` calls.
    void spread(std::size_t calls) { m_a_call = (m_lines + calls - 1) / calls; }

    void fetch() {
        for (std::size_t n = 0; n < m_a_call && m_at < m_count; ++n) {
            Block& block = m_blocks[m_at];
            __builtin_prefetch(block.from + m_column, 0, 2);
            m_column += k_line;
            if (m_column < block.width) continue;
            m_column = 0;
            block.from += block.stride;
            if (--block.rows == 0) ++m_at;
        }
    }

private:
    static constexpr std::size_t k_line = 64;  // bytes
    static constexpr std::size_t k_most = 6;
    struct Block {
        const char* from = nullptr;
        std::size_t stride = 0, rows = 0, width = 0;
    };
    Block m_blocks[k_most];
    std::size_t m_count = 0, m_at = 0, m_column = 0, m_lines = 0, m_a_call = 0;
};

}  // namespace

}  // namespace gdnctl::oracle
