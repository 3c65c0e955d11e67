#include "oracle/gdn/compare/perturb.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

namespace {

// Error limit of a normalisation in fp32: a sum of up to 256 squares, a square root, a division.
constexpr double k_norm_error = 8 * k_fp32_roundoff;

void cross_row(const double* given, std::size_t width, double eps, DType dtype, double* moved) {
    double squares = eps;
    for (std::size_t i = 0; i < width; ++i) squares += given[i] * given[i];
    const double length = std::sqrt(squares);
    for (std::size_t i = 0; i < width; ++i) {
        const double exact = given[i] / length;
        if (!std::isfinite(exact)) continue;
        for (const double way : {-1.0, 1.0}) {
            const bool other = rounded_to(exact * (1 + way * k_norm_error), dtype) != rounded_to(exact, dtype);
            if (other) moved[i] = given[i] * (1 + 2 * way * k_norm_error);
        }
    }
}

}  // namespace

void cross_roundings(const GdnProblem& given, const GdnContract& contract, GdnProblem& moved) {
    if (contract.l2norm == L2Norm::off || contract.rounding != NormRounding::input) return;
    if (given.qk_dtype != DType::bf16 && given.qk_dtype != DType::f16) return;
    const auto width = static_cast<std::size_t>(given.dims.dk);
    for (auto [from, to] : {std::pair(&given.q, &moved.q), std::pair(&given.k, &moved.k)}) {
        for (std::size_t at = 0; at < from->size(); at += width) {
            cross_row(from->data() + at, width, contract.eps, given.qk_dtype, to->data() + at);
        }
    }
}

}  // namespace gdnctl::oracle
