#include "oracle/gdn/compare/groups.h"

#include <algorithm>
#include <cmath>

#include "oracle/simd/tasks.h"

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

namespace {

void add_run(const double* got, const double* want, std::size_t width, NotFinite not_finite, GroupSums& to) {
    GroupSums s = to;
    for (std::size_t i = 0; i < width; ++i) {
        if (!std::isfinite(want[i])) continue;
        double error = std::fabs(got[i] - want[i]);
        if (!std::isfinite(error)) {
            ++s.unmeasured;
            if (not_finite == NotFinite::is_unmeasured) error = 0;
        }
        s.error_squares += error * error;
        // A comparison must not drop a NaN.
        s.max_error = std::isnan(error) ? HUGE_VAL : std::max(s.max_error, error);
        s.truth_squares += want[i] * want[i];
        s.max_truth = std::max(s.max_truth, std::fabs(want[i]));
        ++s.count;
    }
    to = s;
}

void add_sums(const GroupSums& from, GroupSums& to) {
    to.error_squares += from.error_squares;
    to.max_error = std::max(to.max_error, from.max_error);
    to.truth_squares += from.truth_squares;
    to.max_truth = std::max(to.max_truth, from.max_truth);
    to.count += from.count;
    to.unmeasured += from.unmeasured;
}

}  // namespace

std::vector<GroupSums> sum_groups(const Groups& groups, const std::vector<double>& got, const std::vector<double>& want,
                                  int threads, NotFinite not_finite) {
    const std::size_t runs = want.size() / std::max<std::size_t>(groups.width, 1);
    const Blocks blocks(runs, groups.width);
    std::vector<std::vector<GroupSums>> parts(blocks.count, std::vector<GroupSums>(groups.count));
    run_tasks(blocks.count, threads, [&] {
        return [&](std::size_t block) {
            for (std::size_t run = blocks.begin(block); run < blocks.end(block); ++run) {
                const std::size_t at = run * groups.width;
                add_run(got.data() + at, want.data() + at, groups.width, not_finite, parts[block][groups.of_run[run]]);
            }
        };
    });
    for (std::size_t block = 1; block < parts.size(); ++block) {
        for (std::size_t g = 0; g < groups.count; ++g) add_sums(parts[block][g], parts[0][g]);
    }
    return parts.empty() ? std::vector<GroupSums>(groups.count) : std::move(parts[0]);
}

}  // namespace gdnctl::oracle
