#include "oracle/linear_ce/kernels/row_kernel.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle::linear_ce {

#if defined(__AVX512BF16__)

namespace {

constexpr std::size_t k_height = 12, k_vectors = 2, k_lanes = 16;  // as row.cpp has them for AVX-512

void multiply_pairs(const float* a, const float* b, std::size_t depth, float* c, std::size_t stride, bool add) {
    __m512 sum[k_height][k_vectors];
    for (auto& row : sum) {
        for (__m512& s : row) s = _mm512_setzero_ps();
    }
    for (std::size_t k = 0; k < depth; ++k, a += k_height, b += k_vectors * k_lanes) {
        __m512bh row[k_vectors];
        for (std::size_t v = 0; v < k_vectors; ++v) row[v] = (__m512bh)_mm512_loadu_ps(b + v * k_lanes);
#pragma GCC unroll 16
        for (std::size_t y = 0; y < k_height; ++y) {
            const auto factor = (__m512bh)_mm512_set1_ps(a[y]);
            for (std::size_t v = 0; v < k_vectors; ++v) sum[y][v] = _mm512_dpbf16_ps(sum[y][v], factor, row[v]);
        }
    }
    for (std::size_t y = 0; y < k_height; ++y) {
        for (std::size_t v = 0; v < k_vectors; ++v) {
            float* to = c + y * stride + v * k_lanes;
            _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sum[y][v]) : sum[y][v]);
        }
    }
}

void narrow(const float* from, Bf16* to) {
    for (std::size_t v = 0; v < k_vectors; ++v) {
        const __m256bh halves = _mm512_cvtneps_pbh(_mm512_loadu_ps(from + v * k_lanes));
        _mm256_storeu_si256((__m256i*)(to + v * k_lanes), (__m256i)halves);
    }
}

// _mm512_cvtepu16_epi32 would do, but the header of g++ 12 makes a warning of it.
__m512i widened(__m256bh halves) { return _mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)halves); }

void pair(const float* first, const float* second, float* to) {
    for (std::size_t v = 0; v < k_vectors; ++v) {
        __m512i both = widened(_mm512_cvtneps_pbh(_mm512_loadu_ps(first + v * k_lanes)));
        if (second != nullptr) {
            const __m512i high = widened(_mm512_cvtneps_pbh(_mm512_loadu_ps(second + v * k_lanes)));
            both = _mm512_or_si512(both, _mm512_slli_epi32(high, 16));
        }
        _mm512_storeu_si512(to + v * k_lanes, both);
    }
}

}  // namespace

RowKernel<float> row_kernel32_avx512bf16() {
    RowKernel<float> kernel;
    kernel.multiply_pairs = multiply_pairs;
    kernel.narrow = narrow;
    kernel.pair = pair;
    return kernel;
}

#else

RowKernel<float> row_kernel32_avx512bf16() { return {}; }

#endif

}  // namespace gdnctl::oracle::linear_ce
