#include "oracle/compare/metrics.h"

#include <algorithm>
#include <cmath>

namespace gdnctl::oracle {

namespace {

double epsilon_of(DType dtype) {
    switch (dtype) {
        case DType::f64: return 0x1p-52;
        case DType::f16: return 0x1p-10;
        case DType::bf16: return 0x1p-7;
        default: return 0x1p-23;
    }
}

double percentile(std::vector<double>& values, double fraction) {
    if (values.empty()) return 0;
    const auto index = static_cast<std::ptrdiff_t>(fraction * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + index, values.end());
    return values[static_cast<std::size_t>(index)];
}

bool same_nonfinite(double x, double y) { return (std::isnan(x) && std::isnan(y)) || (std::isinf(x) && x == y); }

}  // namespace

void measure(const std::vector<double>& got, const std::vector<double>& want, const Rule& rule, TensorReport& report) {
    double error_squares = 0;
    double truth_squares = 0;
    double got_squares = 0;
    double product = 0;
    std::size_t finite = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (!std::isfinite(got[i])) ++report.nonfinite_got;
        if (!std::isfinite(want[i])) ++report.nonfinite_want;
        if (!std::isfinite(got[i]) || !std::isfinite(want[i])) continue;
        const double error = got[i] - want[i];
        error_squares += error * error;
        truth_squares += want[i] * want[i];
        got_squares += got[i] * got[i];
        product += got[i] * want[i];
        report.max_abs = std::max(report.max_abs, std::fabs(error));
        ++finite;
    }
    const double floor =
        finite == 0 ? 0 : epsilon_of(report.judged) * std::sqrt(truth_squares / static_cast<double>(finite));
    report.nmse = truth_squares > 0 ? error_squares / truth_squares : (error_squares > 0 ? HUGE_VAL : 0);
    report.rms_ratio = std::sqrt(report.nmse);
    const double norms = std::sqrt(truth_squares) * std::sqrt(got_squares);
    report.cosine = norms > 0 ? product / norms : (truth_squares == got_squares ? 1 : 0);

    std::vector<double> ulps;
    ulps.reserve(finite);
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (!std::isfinite(got[i]) || !std::isfinite(want[i])) {
            const bool outside = !same_nonfinite(got[i], want[i]);
            report.numpy_rule.count += outside ? 1 : 0;
            report.flashinfer_rule.count += outside ? 1 : 0;
            continue;
        }
        const double error = std::fabs(got[i] - want[i]);
        const double size = std::fabs(want[i]);
        if (error > 0) report.max_rel = std::max(report.max_rel, error / std::max(size, floor));
        if (error > rule.atol + rule.rtol * size) ++report.numpy_rule.count;
        if (error > 1e-2 && error / (size + 1e-8) > 1e-2) ++report.flashinfer_rule.count;
        ulps.push_back(ulp_distance(got[i], want[i], report.judged));
    }
    const double total = want.empty() ? 1 : static_cast<double>(want.size());
    report.numpy_rule.fraction = static_cast<double>(report.numpy_rule.count) / total;
    report.flashinfer_rule.fraction = static_cast<double>(report.flashinfer_rule.count) / total;
    report.ulp = {percentile(ulps, 1), percentile(ulps, 0.5), percentile(ulps, 0.99)};
}

}  // namespace gdnctl::oracle
