// The inner loops of the code that simulates mistakes. Sanitizers check every element that a loop touches, which makes
// these loops five times slower. So ranges are checked once by assert, and the loops are compiled without sanitizers.
#pragma once

#include <cassert>
#include <cstddef>
#include <span>
#include <vector>

// clang has no macro that shows whether its sanitizers are on.
#if defined(__clang__) || defined(__SANITIZE_ADDRESS__)
#define GDNCTL_RANGES_CHECKED __attribute__((no_sanitize("address", "undefined")))
#else
#define GDNCTL_RANGES_CHECKED
#endif

namespace gdnctl::oracle {

namespace sums_detail {

template <class Real>
GDNCTL_RANGES_CHECKED void add_rows(Real* to, std::size_t width, Real sign, const double* factors, std::size_t count,
                                    const Real* rows) {
    for (std::size_t i = 0; i < count; ++i, rows += width) {
        const Real factor = sign * static_cast<Real>(factors[i]);
        if (factor == 0) continue;
        for (std::size_t j = 0; j < width; ++j) to[j] += factor * rows[j];
    }
}

inline GDNCTL_RANGES_CHECKED double sum_of_products(const double* a, const double* b, std::size_t count) {
    // Four independent sums, so that none waits for another.
    double sums[4] = {0, 0, 0, 0};
    std::size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        sums[0] += a[i] * b[i];
        sums[1] += a[i + 1] * b[i + 1];
        sums[2] += a[i + 2] * b[i + 2];
        sums[3] += a[i + 3] * b[i + 3];
    }
    for (; i < count; ++i) sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

inline GDNCTL_RANGES_CHECKED void scaled_difference(double* a, const double* b, double factor, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) a[i] = (a[i] - b[i]) * factor;
}

}  // namespace sums_detail

inline double inner(std::span<const double> a, std::span<const double> b) {
    assert(a.size() == b.size());
    return sums_detail::sum_of_products(a.data(), b.data(), a.size());
}

// a = (a - b) factor
inline void scale_difference(std::span<double> a, std::span<const double> b, double factor) {
    assert(a.size() == b.size());
    sums_detail::scaled_difference(a.data(), b.data(), factor, a.size());
}

// to += sign * sum_i factors_i rows_i, in this order; `rows` has to.size() values per factor. A factor of 0 skips its
// row, even if it contains NaN.
template <class Real>
void add_rows(std::span<Real> to, Real sign, std::span<const double> factors, std::span<const Real> rows) {
    assert(rows.size() == factors.size() * to.size());
    sums_detail::add_rows(to.data(), to.size(), sign, factors.data(), factors.size(), rows.data());
}

}  // namespace gdnctl::oracle

namespace gdnctl::oracle {

// Approximates a vector by a linear combination of others.

// The factors x that bring the sum of x[i] * terms[i] closest to target; all have the same length. A term that is all 0
// gets the factor 1.
std::vector<double> least_squares(const std::vector<std::vector<double>>& terms, const std::vector<double>& target);

// The sum for these factors.
std::vector<double> combined(const std::vector<std::vector<double>>& terms, const std::vector<double>& factors);

}  // namespace gdnctl::oracle
