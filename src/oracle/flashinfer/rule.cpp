#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/flashinfer/flashinfer.h"

namespace gdnctl::oracle::flashinfer {

namespace {

// A running maximum that NaN does not enter: the rule keeps its figures so.
void raise(double& largest, double value) {
    if (value > largest) largest = value;
}

// NaN once there is one, as a tensor's maximum.
struct Largest {
    double value = 0;
    void add(double x) {
        if (std::isnan(x) || x > value) value = std::isnan(value) ? value : x;
    }
};

void compare(const Tensor& got, const Tensor& want, const std::string& name, RuleResult& result) {
    constexpr float k_epsilon = 1e-8F;
    constexpr auto k_tolerance = static_cast<float>(k_rule_tolerance);
    Largest absolute;
    Largest relative;
    std::size_t outside = 0;
    bool zeros_pass = got.count() > 0;
    for (std::size_t i = 0; i < got.count(); ++i) {
        const auto x = static_cast<float>(element(got, i));
        const auto y = static_cast<float>(element(want, i));
        const float error = std::fabs(x - y);
        const float ratio = error / (std::fabs(y) + k_epsilon);
        absolute.add(error);
        relative.add(ratio);
        if (error > k_tolerance && ratio > k_tolerance) ++outside;
        if (std::isfinite(y)) {
            zeros_pass = zeros_pass && !(std::fabs(y) > k_tolerance);
        } else {
            ++result.non_finite_reference;
        }
    }
    raise(result.max_absolute_error, absolute.value);
    raise(result.max_relative_error, relative.value);
    result.outside += outside;
    if (outside > 0) result.status = TraceStatus::incorrect_numerical;
    if (zeros_pass) result.zeros_pass.push_back(name);
}

// Infinity before NaN; 0: all finite.
double non_finite_value(const Tensor& tensor) {
    double found = 0;
    for (std::size_t i = 0; i < tensor.count(); ++i) {
        const double x = element(tensor, i);
        if (std::isinf(x)) return std::numeric_limits<double>::infinity();
        if (std::isnan(x)) found = x;
    }
    return std::isnan(found) ? std::numeric_limits<double>::quiet_NaN() : 0;
}

}  // namespace

RuleResult apply_rule(const TensorFile& got, const TensorFile& reference) {
    RuleResult result;
    for (const NamedTensor& want : reference.tensors) {
        const Tensor* tensor = got.find(want.name);
        if (tensor == nullptr || tensor->shape != want.tensor.shape) {
            return {TraceStatus::incorrect_shape, 0, 0, 0, 0, {}};
        }
        if (tensor->dtype != want.tensor.dtype) return {TraceStatus::incorrect_dtype, 0, 0, 0, 0, {}};
        if (const double value = non_finite_value(*tensor); value != 0) {
            result.status = TraceStatus::incorrect_numerical;
            result.max_absolute_error = value;
            result.max_relative_error = value;
            return result;
        }
        compare(*tensor, want.tensor, want.name, result);
    }
    return result;
}

std::vector<std::string> rule_holes(const RuleResult& rule, Stage stage, bool right, double error_over_budget) {
    std::vector<std::string> holes;
    const bool passed = rule.status == TraceStatus::passed;
    if (rule.non_finite_reference > 0) {
        holes.push_back(fmt::format("{} values of the reference are NaN or infinite: no finite result can fail there",
                                    rule.non_finite_reference));
    }
    if (!rule.zeros_pass.empty()) {
        holes.push_back(fmt::format("no value of {} is beyond {}: a result of zeros would pass",
                                    text::join(rule.zeros_pass, " and "), k_rule_tolerance));
    }
    if (passed && !right) {
        holes.push_back(
            error_over_budget > k_ok_band
                ? fmt::format("the rule accepts {:.2g} times the error of a correct kernel", error_over_budget)
                : std::string("the rule checks only one call and accepts this"));
        if (stage == Stage::mtp) holes.emplace_back("the rule checks the unchanged pool, not the states");
    }
    if (!passed && right) {
        holes.push_back(fmt::format("{} values exceed both tolerances, but so does a correct kernel", rule.outside));
    }
    return holes;
}

}  // namespace gdnctl::oracle::flashinfer
