// Linear softmax cross-entropy without the matrix of logits: x [B,H] and w [H,V] are multiplied a block of the
// vocabulary at a time, and what a block gives is summed at once. In fp32 the fast kernel, in fp64 the truth.
//
// For row i with label y: z = x_i w, s = cap tanh(z / cap), lse = log sum_v exp(s_v), loss = lse - s_y.
// The results are the same bits for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "oracle/simd/isa.h"
#include "oracle/simd/values.h"

namespace gdnctl::oracle::linear_ce {

enum class Layout { hv, vh };  // w is [H,V] | [V,H]

struct Operands {
    std::size_t batch = 0, hidden = 0, vocab = 0;
    ConstValues x, w;
    Layout layout = Layout::hv;
    const std::int64_t* labels = nullptr;  // [B]; one outside [0, V) is in no column
    double soft_cap = 0;                   // 0: none
    bool bf16_logits = false;              // z is rounded to bf16 before the cap
    const double* shift = nullptr;         // [B], added to the row's z before that; nullptr: none
};

struct Run {
    int threads = 1;
    Isa isa = best_isa();
    std::function<bool()> stop = {};  // asked between blocks: true leaves the results unfinished
    std::size_t block = 0;            // columns of a block, an even number for products of pairs; 0: the kernel's own
};

// Each [B], or nullptr: not wanted.
template <class Real>
struct Rows {
    Real* loss = nullptr;
    Real* lse = nullptr;
    std::int64_t* argmax = nullptr;  // the lowest id among equals
    Real* largest = nullptr;         // the largest s
};

// A matrix of Real, or of bf16. data == nullptr: not wanted.
template <class Real>
struct Gradient {
    Real* data = nullptr;
    Bf16* narrow = nullptr;

    bool wanted() const { return data != nullptr || narrow != nullptr; }
};

// With `keep_in`, where gw will be, the logits of as many rows as fit in are left there for gradients().
template <class Real>
void forward(const Operands& operands, const Rows<Real>& rows, const Run& run, const Gradient<Real>& keep_in = {});

template <class Real>
struct Cotangents {
    const Real* lse = nullptr;                         // [B], of the forward
    const double *d_loss = nullptr, *d_lse = nullptr;  // [B]
};

// delta_v = [(d_loss + d_lse) exp(s_v - lse) - d_loss 1(v = y)] (1 - (s_v / cap)^2); gx = delta w^T, gw = x^T delta.
// gw has the layout of w.
enum class RoundDelta { no, bf16, tf32 };  // before both products
struct GradientsHow {
    RoundDelta round_delta = RoundDelta::no;
    bool kept = false;  // gw holds what forward() of the same operands and run left there: three products, not four
};
template <class Real>
void gradients(const Operands& operands, const Cotangents<Real>& cotangents, const Gradient<Real>& gx,
               const Gradient<Real>& gw, const GradientsHow& how, const Run& run);

}  // namespace gdnctl::oracle::linear_ce
