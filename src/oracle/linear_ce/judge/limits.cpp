#include "oracle/linear_ce/judge/limits.h"

#include <algorithm>
#include <cmath>

namespace gdnctl::oracle::linear_ce {

namespace {

constexpr double k_bf16_gradient = 5e-2;

bool narrow(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

double bf16_spacing(double x) {
    const double size = std::fabs(x);
    if (size == 0 || !std::isfinite(size)) return 0;
    return std::ldexp(1.0, std::ilogb(size) - 7);
}

double largest_of(const Tensor& tensor) {
    double largest = 0;
    for (std::size_t i = 0; i < tensor.count(); ++i) largest = std::max(largest, std::fabs(element(tensor, i)));
    return largest;
}

}  // namespace

std::string_view name_of(ErrorClass error_class) {
    switch (error_class) {
        case ErrorClass::f32: return "f32";
        case ErrorClass::bf16_inputs: return "bf16 inputs";
        case ErrorClass::stored_bf16: return "stored bf16";
        case ErrorClass::tpu_default: return "default TPU precision";
    }
    return "";
}

ErrorClass class_of(const Problem& problem, const Tensor& tensor) {
    if (narrow(problem.x_dtype) || narrow(problem.w_dtype)) {
        // Gradients of narrow inputs are stored as those are.
        const bool row = tensor.shape.size() <= 1;  // or `reduced`
        return row && narrow(tensor.dtype) ? ErrorClass::stored_bf16 : ErrorClass::bf16_inputs;
    }
    if (narrow(tensor.dtype)) return ErrorClass::stored_bf16;
    return problem.c().matmul == Matmul::bf16 ? ErrorClass::tpu_default : ErrorClass::f32;
}

double row_tolerance(ErrorClass error_class) { return error_class == ErrorClass::tpu_default ? 1e-4 : 1e-5; }

double row_limit(ErrorClass error_class, double lse, double loss) {
    if (error_class == ErrorClass::stored_bf16) {
        return 1e-2 + bf16_spacing(std::max(std::fabs(lse), std::fabs(loss)));
    }
    const double a = row_tolerance(error_class);
    return a + a * std::fabs(lse);
}

double lse_rounding(const std::vector<double>& lse) {
    double largest = 0;
    for (const double x : lse) largest = std::max(largest, std::fabs(x));
    return 2e-7 * (1 + largest);
}

GradientLimit gradient_limit(const Problem& problem, const Tensor& gradient, const std::vector<double>& lse) {
    GradientLimit limit;
    if (class_of(problem, gradient) != ErrorClass::f32) limit.relative = k_bf16_gradient;
    const std::vector<double> d_lse = problem.lse_cotangents(lse);
    double cotangent = 0;
    for (std::size_t i = 0; i < problem.batch; ++i) {
        cotangent = std::max(cotangent, std::fabs(problem.d_loss[i]) + std::fabs(d_lse[i]));
    }
    const double rounding = lse_rounding(lse) * cotangent;
    limit.floor_gx = rounding * largest_of(problem.w);
    limit.floor_gw = rounding * largest_of(problem.x);
    return limit;
}

InvariantLimits invariant_limits(const Problem& problem, const Dump& dump) {
    const bool exact = class_of(problem, *dump.gx) == ErrorClass::f32 && class_of(problem, *dump.gw) == ErrorClass::f32;
    return exact ? InvariantLimits{} : InvariantLimits{1e-3, 5e-3};
}

}  // namespace gdnctl::oracle::linear_ce
