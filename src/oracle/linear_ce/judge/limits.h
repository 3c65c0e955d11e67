// How far an honest kernel may be off.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "oracle/linear_ce/judge/problem.h"
#include "oracle/linear_ce/judge/truth.h"

namespace gdnctl::oracle::linear_ce {

// The precision with which a tensor was computed; named in every report, because each entry widens the limits.
enum class ErrorClass { f32, bf16_inputs, stored_bf16, tpu_default, tf32 };

std::string_view name_of(ErrorClass error_class);  // "bf16 inputs"
bool is_narrow(DType dtype);                       // 16 bits
ErrorClass class_of(const Problem& problem, const Tensor& tensor);

// |got - want| of loss and lse; `size` is |lse|, whatever the loss is: loss = lse - s cancels.
double row_limit(ErrorClass error_class, double lse, double loss);
// |got - want| of `reduced`, the sum over rows of what each may be off by. `loss` and `lse` are of all rows, and so is
// `slack`, or it is empty.
double reduced_limit(const Problem& problem, const Dump& dump, double want, const std::vector<double>& loss,
                     const std::vector<double>& lse, const std::vector<double>& slack);

// How far the row's logit at `got` is below the largest, as a multiple of what honest rounding can hide. Infinite for
// an id outside the vocabulary, and for one of equal raw logits that is not the first.
double argmax_excess(const Problem& problem, const RowTruth& rows, std::size_t at, std::int64_t got);

// |got - want| of a gradient.
struct GradientLimit {
    double flat = 0;              // of every element
    double storage = 0;           // of each, as a part of it
    std::vector<double> of_line;  // of a line's elements besides; empty: nothing

    double at(std::size_t line, double want) const {
        return flat + storage * std::fabs(want) + (of_line.empty() ? 0 : of_line[line]);
    }
};
// A part of the largest value, what p - 1 loses where it is nearly 0, the rounding of storage, and what follows from
// the rows' slack. `want` are the exact values of the rows of gx, or of some columns of gw; `lse` those of all rows.
GradientLimit gx_limit(const Problem& problem, const Dump& dump, const RowTruth& rows, const std::vector<double>& lse);
GradientLimit gw_limit(const Problem& problem, const Dump& dump, const RowTruth& rows, const std::vector<double>& lse,
                       const std::vector<double>& want);

// Relations that the exact gradients of any linear cross-entropy satisfy, over whole tensors and without a truth.

struct Invariant {
    double value = 0, limit = 0;
    std::size_t at = 0;        // I2: the hidden dimension of the worst sum
    double got = 0, want = 0;  // the two sums

    bool holds() const { return value <= limit; }  // not for NaN
};

struct Invariants {
    Invariant products;                 // I1: sum gx x = sum gw w, as a part of sum |gx x|
    double gx_noise = 0, gw_noise = 0;  // what the storage of a gradient that is right adds to the limit of I1
    Invariant columns;  // I2: sum_v gw[h,v] = sum_b x[b,h] d_lse[b], as a part of sum_v |gw[h,v]|; not with a cap
};

// Both gradients must be there. `lse` is that of all rows.
Invariants invariants_of(const Problem& problem, const Dump& dump, const std::vector<double>& lse, int threads);

}  // namespace gdnctl::oracle::linear_ce
