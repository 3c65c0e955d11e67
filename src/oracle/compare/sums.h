// The inner loops of what acts mistakes out. Sanitizers check every element that a loop touches, which makes these take
// five times as long; here the ranges are checked once, by assert, and the loop itself is compiled without.
#pragma once

#include <cassert>
#include <cstddef>
#include <span>

#if defined(__SANITIZE_ADDRESS__)
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

}  // namespace sums_detail

// to += sign * sum_i factors_i rows_i, in this order; `rows` has as many values as `to` for each factor. A factor of 0
// leaves its row out, NaN or not.
template <class Real>
void add_rows(std::span<Real> to, Real sign, std::span<const double> factors, std::span<const Real> rows) {
    assert(rows.size() == factors.size() * to.size());
    sums_detail::add_rows(to.data(), to.size(), sign, factors.data(), factors.size(), rows.data());
}

}  // namespace gdnctl::oracle
