// The recurrence on one panel of columns of one value head, as described to the kernels of all three instruction sets.
#pragma once

#include <cstddef>

namespace gdnctl::oracle {

// Columns of a panel. A panel of 128 rows is 16 KB and stays in the first-level cache for the whole sequence.
template <class Real>
inline constexpr std::size_t k_recurrent_columns = 128 / sizeof(Real);

// All pointers are to the first token of the sequence; strides count elements between tokens.
template <class Real>
struct RecurrentPanel {
    const Real* q = nullptr;  // [tokens, dk] of this value head's key head
    const Real* k = nullptr;
    const Real* v = nullptr;      // [tokens, columns]
    const Real* alpha = nullptr;  // [tokens], exp(g)
    const Real* beta = nullptr;
    Real* out = nullptr;  // [tokens, columns]
    std::size_t key_stride = 0, value_stride = 0, gate_stride = 0;
    std::size_t tokens = 0, dk = 0;
    std::size_t columns = 0;  // at most k_recurrent_columns
    Real* state = nullptr;    // [dk, columns] with rows `state_stride` apart; read and written
    std::size_t state_stride = 0;
    Real scale = 0;
    Real* scratch = nullptr;  // dk * k_recurrent_columns elements
    Real largest = 0;         // result: the largest |state| after any token
};

// Every product and sum is rounded in the order of the formula on every instruction set: equal bits.
template <class Real>
using RecurrentFunction = void (*)(RecurrentPanel<Real>&);

void recurrent64_scalar(RecurrentPanel<double>& panel);
void recurrent64_avx2(RecurrentPanel<double>& panel);
void recurrent64_avx512(RecurrentPanel<double>& panel);
void recurrent32_scalar(RecurrentPanel<float>& panel);
void recurrent32_avx2(RecurrentPanel<float>& panel);
void recurrent32_avx512(RecurrentPanel<float>& panel);

}  // namespace gdnctl::oracle
