// Small row-major matrix products in fp32, with operands rounded as in a device's matrix unit.
#pragma once

#include <cstddef>
#include <vector>

#include "oracle/gdn/contract/contract.h"

namespace gdnctl::oracle {

struct Matrix {
    const float* data = nullptr;  // contiguous rows
    std::size_t rows = 0, columns = 0;
};

// f32: plain products. bf16, f16, tf32: both operands are rounded to that. bf16x3: each operand is split into hi + lo
// in bf16, products hi*hi + hi*lo + lo*hi. Sums are fp32 in ascending order of the inner index.
class Multiplier {
public:
    explicit Multiplier(Matmul how) : m_how(how) {}

    void set(Matrix a, Matrix b, float* c);       // c = a b
    void add(Matrix a, Matrix b, float* c);       // c += a b
    void subtract(Matrix a, Matrix b, float* c);  // c -= a b

private:
    void accumulate(Matrix a, Matrix b, float* c, float sign);

    Matmul m_how;
    std::vector<float> m_a_high, m_a_low, m_b_high, m_b_low;
};

}  // namespace gdnctl::oracle
