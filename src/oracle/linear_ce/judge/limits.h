// How far an honest kernel may be off.
#pragma once

#include <string>
#include <vector>

#include "oracle/linear_ce/judge/dump.h"
#include "oracle/linear_ce/judge/truth.h"

namespace gdnctl::oracle::linear_ce {

// The precision with which a tensor was computed; named in every report, because each entry widens the limits.
enum class ErrorClass { f32, bf16_inputs, stored_bf16, tpu_default };

std::string_view name_of(ErrorClass error_class);  // "bf16 inputs"
ErrorClass class_of(const Problem& problem, const Tensor& tensor);

// |got - want| of loss and lse; `size` is |lse|, whatever the loss is: loss = lse - s cancels.
double row_limit(ErrorClass error_class, double lse, double loss);
// Relative tolerance of rows that `reduced` is made of.
double row_tolerance(ErrorClass error_class);

// |got - want| of gradients: a part of the largest value, and what p - 1 loses where it is nearly 0.
struct GradientLimit {
    double relative = 1e-4;
    double floor_gx = 0, floor_gw = 0;
};
GradientLimit gradient_limit(const Problem& problem, const Tensor& gradient, const std::vector<double>& lse);

// Of I1 and I2, as parts of the sums of absolute values.
struct InvariantLimits {
    double products = 1e-5, columns = 1e-5;
};
InvariantLimits invariant_limits(const Problem& problem, const Dump& dump);

// 2e-7 (1 + max |lse|), the rounding of a logsumexp in fp32 as it reaches delta.
double lse_rounding(const std::vector<double>& lse);

}  // namespace gdnctl::oracle::linear_ce
