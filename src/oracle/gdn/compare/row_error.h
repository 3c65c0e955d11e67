// The error of a run of elements in units of its group's budget.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "oracle/gdn/compare/local.h"
#include "oracle/gdn/compare/localise.h"

namespace gdnctl::oracle {

struct RowError {
    double squares = 0, largest = 0;
    double local = 0;  // the largest error / the allowance of its own element

    // Elements whose truth is not finite are skipped. A value that is not finite where the truth is counts as an
    // infinite error.
    void add(double got, double want, double granted = HUGE_VAL) {
        if (!std::isfinite(want)) return;
        const double error = std::isfinite(got) ? std::fabs(got - want) : HUGE_VAL;
        squares += error * error;
        largest = std::max(largest, error);
        if (std::isfinite(error) && error > local * granted) local = error / granted;
    }
    void add(const RowError& other) {
        squares += other.squares;
        largest = std::max(largest, other.largest);
        local = std::max(local, other.local);
    }
    double over(std::size_t count, const GroupBudget& budget) const {
        if (count == 0) return 0;
        return std::max(
            {std::sqrt(squares / static_cast<double>(count)) / budget.rms, largest / budget.max_abs, local});
    }
};

inline RowError row_error(const Evidence& e, std::size_t begin, std::size_t count) {
    RowError row;
    if (e.budget == nullptr || e.budget->local.empty()) {
        for (std::size_t i = begin; i < begin + count; ++i) row.add((*e.got)[i], (*e.want)[i]);
        return row;
    }
    for (std::size_t i = begin; i < begin + count; ++i) {
        row.add((*e.got)[i], (*e.want)[i], granted_locally(*e.budget, i, (*e.want)[i], e.judged));
    }
    return row;
}

}  // namespace gdnctl::oracle
