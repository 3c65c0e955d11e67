#include "oracle/judge/metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "oracle/simd/tasks.h"

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

bool same_nonfinite(double x, double y) { return (std::isnan(x) && std::isnan(y)) || (std::isinf(x) && x == y); }

// The result of one pass over some elements.
struct Sums {
    double error_squares = 0, truth_squares = 0, got_squares = 0, product = 0, max_abs = 0;
    std::size_t finite = 0, nonfinite_got = 0, nonfinite_want = 0;
};

Sums sums_of(const double* got, const double* want, std::size_t count) {
    Sums s;
    for (std::size_t i = 0; i < count; ++i) {
        const bool got_finite = std::isfinite(got[i]);
        const bool want_finite = std::isfinite(want[i]);
        if (!got_finite) ++s.nonfinite_got;
        if (!want_finite) ++s.nonfinite_want;
        if (!got_finite || !want_finite) continue;
        const double error = got[i] - want[i];
        s.error_squares += error * error;
        s.truth_squares += want[i] * want[i];
        s.got_squares += got[i] * got[i];
        s.product += got[i] * want[i];
        s.max_abs = std::max(s.max_abs, std::fabs(error));
        ++s.finite;
    }
    return s;
}

// ULP distances are whole numbers >= 0, so as doubles they sort like their bits, whose upper part selects a bin.
constexpr unsigned k_bin_shift = 48;
constexpr std::size_t k_bins = std::size_t{1} << (63 - k_bin_shift);

std::size_t bin_of(double ulp) { return std::bit_cast<std::uint64_t>(ulp) >> k_bin_shift; }

// The result of a second pass, which needs the size of the truth.
struct Counts {
    double max_rel = 0, max_ulp = 0;
    std::size_t numpy = 0, flashinfer = 0;
    std::vector<std::uint32_t> bins = std::vector<std::uint32_t>(k_bins);
};

Counts counts_of(const double* got, const double* want, std::size_t count, const Rule& rule, double floor,
                 DType judged) {
    Counts c;
    for (std::size_t i = 0; i < count; ++i) {
        if (!std::isfinite(got[i]) || !std::isfinite(want[i])) {
            const bool outside = !same_nonfinite(got[i], want[i]);
            c.numpy += outside ? 1 : 0;
            c.flashinfer += outside ? 1 : 0;
            continue;
        }
        const double error = std::fabs(got[i] - want[i]);
        const double size = std::fabs(want[i]);
        // Only divides if it can be the largest.
        const double against = std::max(size, floor);
        if (error > 0 && !(error < c.max_rel * against)) c.max_rel = std::max(c.max_rel, error / against);
        if (error > rule.atol + rule.rtol * size) ++c.numpy;
        if (error > 1e-2 && error / (size + 1e-8) > 1e-2) ++c.flashinfer;
        const double ulp = ulp_distance(got[i], want[i], judged);
        c.max_ulp = std::max(c.max_ulp, ulp);
        ++c.bins[bin_of(ulp)];
    }
    return c;
}

// The distance at `rank` in sorted order.
double ulp_of_rank(const std::vector<double>& got, const std::vector<double>& want, DType judged,
                   const std::vector<std::uint64_t>& bins, std::uint64_t rank) {
    std::size_t bin = 0;
    while (bin < k_bins && bins[bin] <= rank) rank -= bins[bin++];
    if (bin == k_bins) return 0;
    const double lowest = std::ceil(std::bit_cast<double>(static_cast<std::uint64_t>(bin) << k_bin_shift));
    if (bin_of(lowest + 1) != bin) return lowest;  // no other whole number is in this bin
    std::vector<double> inside;
    inside.reserve(bins[bin]);
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (!std::isfinite(got[i]) || !std::isfinite(want[i])) continue;
        const double ulp = ulp_distance(got[i], want[i], judged);
        if (bin_of(ulp) == bin) inside.push_back(ulp);
    }
    const auto at = inside.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(inside.begin(), at, inside.end());
    return *at;
}

}  // namespace

void measure(const std::vector<double>& got, const std::vector<double>& want, const Rule& rule, TensorReport& report,
             int threads) {
    const Blocks blocks(want.size());
    std::vector<Sums> sums(blocks.count);
    run_tasks(blocks.count, threads, [&] {
        return [&](std::size_t b) {
            const std::size_t first = blocks.begin(b);
            sums[b] = sums_of(got.data() + first, want.data() + first, blocks.end(b) - first);
        };
    });
    Sums all;
    for (const Sums& s : sums) {
        all.error_squares += s.error_squares;
        all.truth_squares += s.truth_squares;
        all.got_squares += s.got_squares;
        all.product += s.product;
        all.max_abs = std::max(all.max_abs, s.max_abs);
        all.finite += s.finite;
        report.nonfinite_got += s.nonfinite_got;
        report.nonfinite_want += s.nonfinite_want;
    }
    report.max_abs = std::max(report.max_abs, all.max_abs);
    const double floor =
        all.finite == 0 ? 0
                        : epsilon_of(report.judged) * std::sqrt(all.truth_squares / static_cast<double>(all.finite));
    report.nmse =
        all.truth_squares > 0 ? all.error_squares / all.truth_squares : (all.error_squares > 0 ? HUGE_VAL : 0);
    report.rms_ratio = std::sqrt(report.nmse);
    const double norms = std::sqrt(all.truth_squares) * std::sqrt(all.got_squares);
    report.cosine = norms > 0 ? all.product / norms : (all.truth_squares == all.got_squares ? 1 : 0);

    std::vector<Counts> counts(blocks.count);
    run_tasks(blocks.count, threads, [&] {
        return [&](std::size_t b) {
            const std::size_t first = blocks.begin(b);
            counts[b] =
                counts_of(got.data() + first, want.data() + first, blocks.end(b) - first, rule, floor, report.judged);
        };
    });
    std::vector<std::uint64_t> bins(k_bins, 0);
    for (const Counts& c : counts) {
        report.max_rel = std::max(report.max_rel, c.max_rel);
        report.ulp.max = std::max(report.ulp.max, c.max_ulp);
        report.numpy_rule.count += c.numpy;
        report.flashinfer_rule.count += c.flashinfer;
        for (std::size_t i = 0; i < k_bins; ++i) bins[i] += c.bins[i];
    }
    const double total = want.empty() ? 1 : static_cast<double>(want.size());
    report.numpy_rule.fraction = static_cast<double>(report.numpy_rule.count) / total;
    report.flashinfer_rule.fraction = static_cast<double>(report.flashinfer_rule.count) / total;
    if (all.finite == 0) return;
    const std::pair<double, double*> percentiles[] = {{0.5, &report.ulp.p50}, {0.99, &report.ulp.p99}};
    run_tasks(std::size(percentiles), threads, [&] {
        return [&](std::size_t i) {
            const auto& [fraction, ulp] = percentiles[i];
            const auto rank = static_cast<std::uint64_t>(fraction * static_cast<double>(all.finite - 1));
            *ulp = ulp_of_rank(got, want, report.judged, bins, rank);
        };
    });
}

}  // namespace gdnctl::oracle
