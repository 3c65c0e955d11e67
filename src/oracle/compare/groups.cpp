#include "oracle/compare/groups.h"

#include <algorithm>
#include <cmath>

namespace gdnctl::oracle {

Groups groups_of_out(const GdnProblem& p) {
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const std::size_t outside = p.sequences.size() * heads;
    Groups groups{std::vector<std::size_t>(static_cast<std::size_t>(p.rows()) * heads, outside),
                  static_cast<std::size_t>(p.dims.dv), outside + 1};
    for (std::size_t n = 0; n < p.sequences.size(); ++n) {
        const auto begin = static_cast<std::size_t>(p.sequences[n].begin);
        const auto end = static_cast<std::size_t>(p.sequences[n].end);
        for (std::size_t run = begin * heads; run < end * heads; ++run) groups.of_run[run] = n * heads + run % heads;
    }
    return groups;
}

Groups groups_of_state(const GdnProblem& p) {
    const std::size_t count = p.sequences.size() * static_cast<std::size_t>(p.dims.Hv);
    Groups groups{std::vector<std::size_t>(count), static_cast<std::size_t>(p.dims.dk * p.dims.dv), count};
    for (std::size_t i = 0; i < count; ++i) groups.of_run[i] = i;
    return groups;
}

double GroupSums::error_rms() const { return count == 0 ? 0 : std::sqrt(error_squares / static_cast<double>(count)); }
double GroupSums::truth_rms() const { return count == 0 ? 0 : std::sqrt(truth_squares / static_cast<double>(count)); }

std::vector<GroupSums> sum_groups(const Groups& groups, const std::vector<double>& got,
                                  const std::vector<double>& want) {
    std::vector<GroupSums> sums(groups.count);
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (!std::isfinite(want[i])) continue;
        GroupSums& s = sums[groups.of(i)];
        const double error = std::fabs(got[i] - want[i]);
        s.error_squares += error * error;
        // A NaN must not be lost in a comparison.
        s.max_error = std::isnan(error) ? HUGE_VAL : std::max(s.max_error, error);
        s.truth_squares += want[i] * want[i];
        s.max_truth = std::max(s.max_truth, std::fabs(want[i]));
        ++s.count;
    }
    return sums;
}

}  // namespace gdnctl::oracle
