// Tiles of Rows x Vectors whose sums stay in registers, and other operations on whole vectors: transposes, row sums.
#pragma once

#include "oracle/simd/vector.h"

namespace gdnctl::oracle {
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
}  // namespace gdnctl::oracle
