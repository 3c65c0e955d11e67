// Detects an undeclared precision by the size and shape of the error.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "oracle/gdn/compare/localise.h"

namespace gdnctl::oracle {

// The precision that leaves errors of this relative size, and how to declare it.
std::string precision_of(double error) {
    constexpr double k_bf16_error = 6e-4;  // smaller errors come from finer operands
    constexpr double k_tf32_error = 4e-5;
    if (error > k_bf16_error) {
        return "operands of products in bf16, or a state kept in bf16 (2^-9): declare it with --set matmul=bf16 or "
               "--set state_dtype=bf16, or state_dtype=bf16-token";
    }
    return error > k_tf32_error ? "operands in tf32 or fp16 (2^-11): declare it with --set matmul=tf32 or matmul=f16"
                                : "three bf16 passes (2^-16): declare it with --set matmul=bf16x3";
}

// The same for a final state whose out is right, because out's own rounding may hide what the state shows. Rounding
// errors are spread over the whole matrix; the write of a few tokens is a matrix of low rank, and a wrong decay is a
// multiple of the truth.
std::optional<Diagnosis> match_hidden_rounding(const GdnReference& r, const ForwardEvidence& evidence,
                                               const LaneErrors& errors) {
    constexpr double k_most = 0.02;  // two bf16 roundings hide no more
    const bool out_wrong =
        std::any_of(errors.chunks.begin(), errors.chunks.end(), [](double x) { return !(x <= k_ok_band); });
    const bool narrow = evidence.out && (evidence.out->judged == DType::bf16 || evidence.out->judged == DType::f16);
    if ((out_wrong && !narrow) || !evidence.state) return std::nullopt;
    const auto dk = static_cast<std::size_t>(r.problem.dims.dk);
    const auto dv = static_cast<std::size_t>(r.problem.dims.dv);
    const auto lane = static_cast<std::size_t>(errors.sequence * r.problem.dims.Hv + errors.head);
    const double* got = evidence.state->got->data() + lane * dk * dv;
    const double* want = evidence.state->want->data() + lane * dk * dv;
    std::vector<std::vector<double>> rows(dk, std::vector<double>(dv));
    double squares = 0;
    double truth = 0;
    double along = 0;
    for (std::size_t x = 0; x < dk; ++x) {
        for (std::size_t j = 0; j < dv; ++j) {
            const double y = want[x * dv + j];
            rows[x][j] = got[x * dv + j] - y;
            squares += rows[x][j] * rows[x][j];
            truth += y * y;
            along += rows[x][j] * y;
        }
    }
    const double whole = truth > 0 ? std::sqrt(squares / truth) : HUGE_VAL;
    if (!(whole <= k_most) || std::fabs(along) > 0.5 * std::sqrt(squares * truth)) return std::nullopt;
    double gram = 0;  // sum of the fourth powers of the singular values
    for (const auto& a : rows) {
        for (const auto& b : rows) {
            const double product = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
            gram += product * product;
        }
    }
    if (std::min(dk, dv) < 4 || std::sqrt(gram) > 0.7 * squares) return std::nullopt;
    const std::string text =
        fmt::format("final_state is off by {:.1g}, evenly{}: consistent with {}", whole,
                    evidence.out ? ", and out is right as far as its own rounding shows" : "", precision_of(whole));
    return Diagnosis{"rounding", {"rounding", "carry"}, {{"rounding", text, 1}}};
}

}  // namespace gdnctl::oracle
