#include "oracle/linear_ce/kernels/row_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gdnctl::oracle::linear_ce {

namespace {

template <class Visit>
void each(const Row<double>& row, const Visit& visit) {
    double* segment = row.at;
    for (std::size_t column = 0; column < row.columns; segment += row.stride) {
        const std::size_t width = std::min(row.width, row.columns - column);
        for (std::size_t i = 0; i < width; ++i) visit(segment[i], column + i);
        column += width;
    }
}

RowSum<double> sum64(const Row<double>& row, double cap) {
    RowSum<double> result{-std::numeric_limits<double>::infinity(), 0};
    each(row, [&](double& z, std::size_t) {
        if (cap > 0) z = cap * std::tanh(z / cap);
        if (z > result.largest) result.largest = z;
    });
    each(row, [&](const double& s, std::size_t) { result.sum += std::exp(s - result.largest); });
    return result;
}

void delta64(const Row<double>& row, double cap, const RowCotangent<double>& cotangent) {
    const double both = cotangent.loss + cotangent.lse;
    each(row, [&](double& s, std::size_t column) {
        const double t = cap > 0 ? s / cap : 0;
        const double hot = column == cotangent.label ? cotangent.loss : 0;
        s = (both * std::exp(s - cotangent.value) - hot) * (1 - t * t);
    });
}

}  // namespace

template <>
RowKernel<float> row_kernel<float>(Isa isa) {
    RowKernel<float> kernel = isa == Isa::avx512 ? row_kernel32_avx512()
                              : isa == Isa::avx2 ? row_kernel32_avx2()
                                                 : row_kernel32_scalar();
    if (isa == Isa::avx512 && has_bf16_products()) {
        const RowKernel<float> bf16 = row_kernel32_avx512bf16();
        kernel.multiply_pairs = bf16.multiply_pairs;
        kernel.narrow = bf16.narrow;
        kernel.pair = bf16.pair;
    }
    return kernel;
}

bool has_bf16_products() {
#if defined(__x86_64__)
    return has_isa(Isa::avx512) && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

template <>
RowKernel<double> row_kernel<double>(Isa isa) {
    RowKernel<double> kernel = isa == Isa::avx512 ? row_kernel64_avx512()
                               : isa == Isa::avx2 ? row_kernel64_avx2()
                                                  : row_kernel64_scalar();
    kernel.sum = sum64;
    kernel.delta = delta64;
    return kernel;
}

}  // namespace gdnctl::oracle::linear_ce
