// The figures of one compared tensor.
#pragma once

#include <algorithm>
#include <cmath>

#include "oracle/linear_ce/judge/compare.h"

namespace gdnctl::oracle::linear_ce {

// Adds up the comparison of one tensor, element by element.
class Tally {
public:
    explicit Tally(TensorVerdict& to) : m_to(to) {}

    // The error as a multiple of the limit.
    template <class Index>
    double add(double got, double want, double limit, const Index& index) {
        ++m_to.compared;
        const double error = std::fabs(got - want);
        double excess = limit > 0 ? error / limit : (error == 0 ? 0 : HUGE_VAL);
        if (!std::isfinite(got)) {
            ++m_to.nonfinite;
            excess = HUGE_VAL;
        } else {
            m_to.max_abs = std::max(m_to.max_abs, error);
            m_errors += error * error;
        }
        m_truth += want * want;
        m_largest = std::max(m_largest, std::fabs(want));
        if (m_to.worst && excess <= m_to.error_over_limit) return excess;
        m_to.error_over_limit = excess;
        m_to.worst = index();
        m_to.worst->got = got;
        m_to.worst->want = want;
        return excess;
    }

    void finish() {
        if (m_to.error_over_limit > 1) m_to.verdict = Verdict::wrong;
        m_to.rms_ratio = m_truth > 0 ? std::sqrt(m_errors / m_truth) : (m_errors > 0 ? HUGE_VAL : 0);
        m_to.relative_max = m_largest > 0 ? m_to.max_abs / m_largest : (m_to.max_abs > 0 ? HUGE_VAL : 0);
    }

private:
    TensorVerdict& m_to;
    double m_errors = 0, m_truth = 0, m_largest = 0;
};

}  // namespace gdnctl::oracle::linear_ce
