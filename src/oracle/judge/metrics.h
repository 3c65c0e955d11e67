// The metrics of one compared tensor.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "oracle/judge/verdict.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

struct UlpDistance {
    double max = 0, p50 = 0, p99 = 0;
};

struct Outside {
    std::size_t count = 0;
    double fraction = 0;
};

struct TensorReport {
    std::string name;       // as in the dump
    std::string canonical;  // "out"
    Shape shape;
    DType stored = DType::f32;
    DType judged = DType::f32;  // dtype that the values stand for, used for ULP distances and output rounding
    Verdict verdict = Verdict::ok;
    Verdict by_budget = Verdict::ok;  // the same, unless a fixed rule decides
    double error_over_budget = 0;
    // The largest error / the allowance from the element's own token, head and column. Beyond the band of WRONG, it is
    // wrong even if other elements are unstable.
    double local_error_over_budget = 0;
    double budget_relative = 0;
    double max_abs = 0, max_rel = 0;  // max_rel: |x-y| / max(|y|, eps rms(y))
    double rms_ratio = 0;             // rms(x-y) / rms(y)
    double nmse = 0;                  // sum (x-y)^2 / sum y^2
    double cosine = 1;
    UlpDistance ulp;
    Outside numpy_rule;       // |x-y| > atol + rtol |y|
    Outside flashinfer_rule;  // |x-y| > 1e-2 and |x-y| / (|y| + 1e-8) > 1e-2
    std::size_t nonfinite_got = 0, nonfinite_want = 0;
    std::size_t beyond_range = 0;  // values of the truth that overflow `judged`
    Worst worst;
    std::vector<Worst> worst_elements;  // worst first, at most k_worst_elements
};

inline constexpr std::size_t k_worst_elements = 8;

struct Rule {
    double rtol = 1e-4, atol = 1e-4;
};

// Fills every metric of `report` except budget, verdict and worst. `report.judged` must be set. Elements that are not
// finite on either side are counted but excluded from averages; a rule counts them as outside unless both sides agree.
void measure(const std::vector<double>& got, const std::vector<double>& want, const Rule& rule, TensorReport& report,
             int threads);

}  // namespace gdnctl::oracle
