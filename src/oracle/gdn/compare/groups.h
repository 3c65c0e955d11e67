// Groups the elements of a tensor by sequence and value head. Errors are never averaged across groups, so that a fault
// in one small head is not hidden by large neighbours.
#pragma once

#include <cstddef>
#include <vector>

#include "oracle/gdn/contract/problem.h"

namespace gdnctl::oracle {

// The group of each run of `width` consecutive elements.
struct Groups {
    std::vector<std::size_t> of_run;
    std::size_t width = 1;
    std::size_t count = 0;

    std::size_t of(std::size_t element) const { return of_run[element / width]; }
};

Groups groups_of_out(const GdnProblem& problem);
Groups groups_of_state(const GdnProblem& problem);

// Sums over one group; skips elements whose truth is not finite.
struct GroupSums {
    double error_squares = 0, max_error = 0;
    double truth_squares = 0, max_truth = 0;
    std::size_t count = 0;
    std::size_t unmeasured = 0;  // not finite where the truth is finite

    double error_rms() const;
    double truth_rms() const;
};

// The meaning of a value that is not finite where the truth is: in a dump it is an error; in a run that measures a
// budget, it says nothing.
enum class NotFinite { is_error, is_unmeasured };

// The result is the same for any number of threads.
std::vector<GroupSums> sum_groups(const Groups& groups, const std::vector<double>& got, const std::vector<double>& want,
                                  int threads = 1, NotFinite not_finite = NotFinite::is_error);

}  // namespace gdnctl::oracle
