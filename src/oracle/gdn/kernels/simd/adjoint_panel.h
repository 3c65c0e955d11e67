// The adjoint of the recurrence on one panel of columns of one value head; shared by the instruction sets.
#pragma once

#include <cstddef>

namespace gdnctl::oracle {

inline constexpr std::size_t k_adjoint_columns = 16;

// Pointers are to the first token of the sequence; strides count elements between tokens. Gradients marked (+) are
// added to: they are sums over the columns of all panels of the head, which must come in a fixed order.
struct AdjointPanel {
    const double* q = nullptr;  // [tokens, dk]
    const double* k = nullptr;
    const double* v = nullptr;      // [tokens, columns]
    const double* d_out = nullptr;  // [tokens, columns]
    const double* alpha = nullptr;  // [tokens], exp(g)
    const double* beta = nullptr;
    double* dq = nullptr;      // [tokens, dk] (+)
    double* dk_out = nullptr;  // (+), of k
    double* dv = nullptr;      // [tokens, columns]
    double* dg = nullptr;      // [tokens] (+)
    double* dbeta = nullptr;   // [tokens] (+)
    std::size_t key_stride = 0, gradient_stride = 0, value_stride = 0, gate_stride = 0;
    std::size_t tokens = 0, dk = 0, columns = 0;
    const double* state = nullptr;  // S0, [dk, columns] with rows `state_stride` apart
    double* d_state = nullptr;      // dL/dS at the end; becomes dL/dS0
    std::size_t state_stride = 0;
    double scale = 0;
    std::size_t segment = 0;    // tokens between checkpoints
    double* scratch = nullptr;  // adjoint_scratch(tokens, dk, segment) elements
};

constexpr std::size_t adjoint_scratch(std::size_t tokens, std::size_t dk, std::size_t segment) {
    const std::size_t panel = dk * k_adjoint_columns;
    return ((tokens + segment - 1) / segment + segment + 1) * panel + 2 * segment * k_adjoint_columns;
}

// Every operation is rounded, and sums over columns have one order: equal bits on every instruction set.
using AdjointFunction = void (*)(const AdjointPanel&);
void adjoint64_scalar(const AdjointPanel& panel);
void adjoint64_avx2(const AdjointPanel& panel);
void adjoint64_avx512(const AdjointPanel& panel);

}  // namespace gdnctl::oracle
