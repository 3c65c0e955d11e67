#include "oracle/gdn/kernels/matmul.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace gdnctl::oracle {

namespace {

// To nearest even; keeps NaN and infinity.
float to_bf16(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7F800000U) == 0x7F800000U) return x;
    return std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) & 0xFFFF0000U);
}

// To the 11 significant bits of tf32 and fp16; below fp16's normal range, to multiples of its smallest number.
float to_11_bits(float x, bool f16) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7F800000U) == 0x7F800000U) return x;
    if (f16 && std::fabs(x) < 0x1p-14F) return std::nearbyint(x * 0x1p24F) * 0x1p-24F;
    return std::bit_cast<float>((bits + 0xFFFU + ((bits >> 13U) & 1U)) & 0xFFFFE000U);
}

float to_operand(float x, Matmul how) {
    return how == Matmul::tf32 || how == Matmul::f16 ? to_11_bits(x, how == Matmul::f16) : to_bf16(x);
}

void product(const float* a, Matrix shape_a, const float* b, std::size_t columns, float* c, float sign) {
    for (std::size_t i = 0; i < shape_a.rows; ++i) {
        float* row = c + i * columns;
        for (std::size_t x = 0; x < shape_a.columns; ++x) {
            const float factor = sign * a[i * shape_a.columns + x];
            const float* from = b + x * columns;
            for (std::size_t j = 0; j < columns; ++j) row[j] += factor * from[j];
        }
    }
}

void split(Matrix m, Matmul how, std::vector<float>& high, std::vector<float>& low) {
    const std::size_t n = m.rows * m.columns;
    high.resize(std::max(high.size(), n));
    low.resize(std::max(low.size(), n));
    for (std::size_t i = 0; i < n; ++i) {
        high[i] = to_operand(m.data[i], how);
        low[i] = to_operand(m.data[i] - high[i], how);
    }
}

}  // namespace

void Multiplier::set(Matrix a, Matrix b, float* c) {
    std::fill_n(c, a.rows * b.columns, 0.0F);
    accumulate(a, b, c, 1);
}

void Multiplier::add(Matrix a, Matrix b, float* c) { accumulate(a, b, c, 1); }

void Multiplier::subtract(Matrix a, Matrix b, float* c) { accumulate(a, b, c, -1); }

void Multiplier::accumulate(Matrix a, Matrix b, float* c, float sign) {
    if (m_how == Matmul::f32) {
        product(a.data, a, b.data, b.columns, c, sign);
        return;
    }
    split(a, m_how, m_a_high, m_a_low);
    split(b, m_how, m_b_high, m_b_low);
    if (m_how == Matmul::bf16x3) {
        product(m_a_low.data(), a, m_b_high.data(), b.columns, c, sign);
        product(m_a_high.data(), a, m_b_low.data(), b.columns, c, sign);
    }
    product(m_a_high.data(), a, m_b_high.data(), b.columns, c, sign);
}

}  // namespace gdnctl::oracle
