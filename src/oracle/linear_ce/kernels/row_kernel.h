// What the instruction sets share: the product of two packed panels, and what is done with a row of logits.
// Each exists once per instruction set and per real type; the passes over the matrices (passes.cpp) know
// only this.
#pragma once

#include <cstddef>

#include "oracle/simd/isa.h"
#include "oracle/simd/values.h"

namespace gdnctl::oracle::linear_ce {

// Some columns of one row of logits, in segments of `width` that lie `stride` elements apart.
template <class Real>
struct Row {
    Real* at = nullptr;
    std::size_t width = 0, stride = 0;
    std::size_t columns = 0;  // in all; the last segment may be shorter
};

template <class Real, class Change>
void change_each(const Row<Real>& row, const Change& change) {
    for (std::size_t column = 0; column < row.columns; ++column) {
        Real& x = row.at[column / row.width * row.stride + column % row.width];
        x = change(x);
    }
}

// sum of exp(s - largest) over the columns of a row.
template <class Real>
struct RowSum {
    Real largest = 0;
    Real sum = 0;
};

// delta_v = ((loss + lse) exp(s_v - value) - loss [v = label]) (1 - (s_v / cap)^2), the last factor only with a cap.
template <class Real>
struct RowCotangent {
    Real value = 0;          // the row's logsumexp
    Real loss = 0, lse = 0;  // d reduced / d loss, d reduced / d lse
    std::size_t label = 0;   // its column in this row; `columns` or more: it is elsewhere
};

template <class Real>
struct RowKernel {
    std::size_t height = 0, width = 0;  // of a tile
    // c[y * stride + x] (+)= sum over k < depth of a[k * height + y] * b[k * width + x]; adds to what is there if
    // `add`.
    void (*multiply)(const Real* a, const Real* b, std::size_t depth, Real* c, std::size_t stride, bool add) = nullptr;
    // Replaces z by cap * tanh(z / cap) (cap 0: leaves it) and sums.
    RowSum<Real> (*sum)(const Row<Real>& row, Real cap) = nullptr;
    // Replaces s, as sum() left it, by delta.
    void (*delta)(const Row<Real>& row, Real cap, const RowCotangent<Real>& cotangent) = nullptr;
    // multiply() of bf16: a and b hold pairs of factors, two in the place of one; depth counts pairs. Products are
    // exact, sums fp32. nullptr: this instruction set has none.
    void (*multiply_pairs)(const Real* a, const Real* b, std::size_t depth, Real* c, std::size_t stride,
                           bool add) = nullptr;
    // `width` elements as bf16; two rows of them as pairs, `second` in the upper halves (nullptr: 0). With
    // multiply_pairs only.
    void (*narrow)(const Real* from, Bf16* to) = nullptr;
    void (*pair)(const Real* first, const Real* second, Real* to) = nullptr;
};

template <class Real>
RowKernel<Real> row_kernel(Isa isa);

RowKernel<float> row_kernel32_scalar();
RowKernel<float> row_kernel32_avx2();
RowKernel<float> row_kernel32_avx512();
// Only what is of bf16, for the tile of row_kernel32_avx512(); has_bf16_products() says whether this processor has it.
RowKernel<float> row_kernel32_avx512bf16();
bool has_bf16_products();
RowKernel<double> row_kernel64_scalar();
RowKernel<double> row_kernel64_avx2();
RowKernel<double> row_kernel64_avx512();

}  // namespace gdnctl::oracle::linear_ce
