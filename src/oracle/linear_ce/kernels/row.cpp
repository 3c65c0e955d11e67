// The product of two packed panels, and what is done with a row of logits, for one instruction set.
#include "oracle/linear_ce/kernels/row_kernel.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle::linear_ce {
namespace {

template <class Real, int Bytes, std::size_t Height, std::size_t Vectors>
void multiply(const Real* a, const Real* b, std::size_t depth, Real* c, std::size_t stride, bool add) {
    using Vector = typename VectorOf<Real, Bytes>::type;
    constexpr std::size_t k_lanes = VectorOf<Real, Bytes>::k_lanes;
    Vector sum[Height][Vectors];
    for (std::size_t y = 0; y < Height; ++y) {
        for (std::size_t v = 0; v < Vectors; ++v) sum[y][v] = Vector{};
    }
    for (std::size_t k = 0; k < depth; ++k, a += Height, b += Vectors * k_lanes) {
        Vector row[Vectors];
        for (std::size_t v = 0; v < Vectors; ++v) row[v] = load<Real, Bytes>(b + v * k_lanes);
#pragma GCC unroll 16
        for (std::size_t y = 0; y < Height; ++y) {
            const Vector factor = a[y] - Vector{};
            for (std::size_t v = 0; v < Vectors; ++v) sum[y][v] += factor * row[v];
        }
    }
    for (std::size_t y = 0; y < Height; ++y) {
        for (std::size_t v = 0; v < Vectors; ++v) {
            Real* to = c + y * stride + v * k_lanes;
            store<Real, Bytes>(to, add ? load<Real, Bytes>(to) + sum[y][v] : sum[y][v]);
        }
    }
}

// tanh to within 3 units in the last place: a series near 0, where 1 - exp(-2|x|) would cancel.
template <int Bytes>
inline typename VectorOf<float, Bytes>::type hyperbolic_tangent(typename VectorOf<float, Bytes>::type x) {
    using Vector = typename VectorOf<float, Bytes>::type;
    const Vector square = x * x;
    Vector p = square * -1.45583438e-3F + 3.59212803e-3F;
    p = p * square - 8.86323553e-3F;
    p = p * square + 2.18694885e-2F;
    p = p * square - 5.39682540e-2F;
    p = p * square + 1.33333333e-1F;
    p = p * square - 3.33333333e-1F;
    const Vector near = x + x * square * p;
    const Vector size = x < 0.0F ? -x : x;
    const Vector decay = exponential<Bytes>(size * -2.0F);
    const Vector ratio = (1.0F - decay) / (1.0F + decay);
    const Vector far = x < 0.0F ? -ratio : ratio;
    return size < 0.5F ? near : far;
}

template <int Bytes>
struct Rows32 {
    using Vector = typename VectorOf<float, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;

    // Calls whole(pointer) for each full vector of the row, then rest(pointer, lanes) for the columns left over.
    template <class Whole, class Rest>
    static void each(const Row<float>& row, const Whole& whole, const Rest& rest) {
        float* segment = row.at;
        for (std::size_t left = row.columns; left > 0; segment += row.stride) {
            const std::size_t width = left < row.width ? left : row.width;
            std::size_t at = 0;
            for (; at + k_lanes <= width; at += k_lanes) whole(segment + at);
            if (at < width) rest(segment + at, width - at);
            left -= width;
        }
    }

    // The `lanes` first elements, and `fill` in the other lanes.
    static Vector part(const float* from, std::size_t lanes, float fill) {
        float values[k_lanes];
        for (std::size_t i = 0; i < k_lanes; ++i) values[i] = i < lanes ? from[i] : fill;
        return load<float, Bytes>(values);
    }

    static void keep_part(float* to, std::size_t lanes, Vector x) {
        for (std::size_t i = 0; i < lanes; ++i) to[i] = x[i];
    }

    static RowSum<float> sum(const Row<float>& row, float cap) {
        const float lowest = -__builtin_inff();
        Vector largest = lowest - Vector{};
        const auto capped = [cap](Vector z) { return cap > 0 ? cap * hyperbolic_tangent<Bytes>(z / cap) : z; };
        each(
            row,
            [&](float* at) {
                const Vector s = capped(load<float, Bytes>(at));
                if (cap > 0) store<float, Bytes>(at, s);
                largest = s > largest ? s : largest;
            },
            [&](float* at, std::size_t lanes) {
                Vector s = capped(part(at, lanes, 0));
                keep_part(at, lanes, s);
                s = part(at, lanes, lowest);
                largest = s > largest ? s : largest;
            });
        RowSum<float> result;
        result.largest = lowest;
        for (std::size_t i = 0; i < k_lanes; ++i) {
            if (largest[i] > result.largest) result.largest = largest[i];
        }
        const float m = result.largest;
        Vector total{};
        each(
            row, [&](float* at) { total += exponential<Bytes>(load<float, Bytes>(at) - m); },
            [&](float* at, std::size_t lanes) {
                const Vector e = exponential<Bytes>(part(at, lanes, m) - m);
                for (std::size_t i = 0; i < lanes; ++i) total[i] += e[i];
            });
        for (std::size_t i = 0; i < k_lanes; ++i) result.sum += total[i];
        return result;
    }

    static void delta(const Row<float>& row, float cap, const RowCotangent<float>& cotangent) {
        const float both = cotangent.loss + cotangent.lse;
        const float inverse = cap > 0 ? 1 / cap : 0;
        const auto slope = [inverse](Vector s) { return 1.0F - (s * inverse) * (s * inverse); };
        const auto of = [&](Vector s) { return both * exponential<Bytes>(s - cotangent.value) * slope(s); };
        float at_label = 0;
        float* label = nullptr;
        if (cotangent.label < row.columns) {
            label = row.at + cotangent.label / row.width * row.stride + cotangent.label % row.width;
            const float t = *label * inverse;
            at_label = cotangent.loss * (1 - t * t);
        }
        each(
            row, [&](float* at) { store<float, Bytes>(at, of(load<float, Bytes>(at))); },
            [&](float* at, std::size_t lanes) { keep_part(at, lanes, of(part(at, lanes, 0))); });
        if (label != nullptr) *label -= at_label;
    }
};

template <int Bytes, std::size_t Height, std::size_t Vectors>
RowKernel<float> kernel32() {
    return {Height, Vectors * VectorOf<float, Bytes>::k_lanes, multiply<float, Bytes, Height, Vectors>,
            Rows32<Bytes>::sum, Rows32<Bytes>::delta};
}

// Only the product: what is done with a row of the truth is row_kernel.cpp's.
template <int Bytes, std::size_t Height, std::size_t Vectors>
RowKernel<double> kernel64() {
    return {Height, Vectors * VectorOf<double, Bytes>::k_lanes, multiply<double, Bytes, Height, Vectors>, nullptr,
            nullptr};
}

}  // namespace

constexpr std::size_t k_height = GDNCTL_BYTES == 64 ? 12 : GDNCTL_BYTES == 32 ? 6 : 4;
RowKernel<float> GDNCTL_KERNEL(row_kernel32)() { return kernel32<GDNCTL_BYTES, k_height, 2>(); }
RowKernel<double> GDNCTL_KERNEL(row_kernel64)() { return kernel64<GDNCTL_BYTES, k_height, 2>(); }

}  // namespace gdnctl::oracle::linear_ce
