// A candidate before the champion: measures what has to be measured, in the right order, and decides.
//
// Where no champion is known under these conditions, HEAD becomes it. HEAD is measured unchanged (A/A) when it is no
// longer what the champion was, every ten judged candidates, before a third refusal in a row, and when several buckets
// changed by one factor; where HEAD is not where the champion was, the base has moved: HEAD is the new baseline, and
// refusals since the last good look are marked suspect. Numbers of two kinds (see Measurement::source) are never
// compared: HEAD is the new baseline then, too, but nothing is suspect. A candidate whose
// device time and wall time changed in opposite directions is measured once more. Pure but for the two calls.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/perf/policy.h"
#include "loop/perf/state.h"

namespace gdnctl::loop {

struct ReviewInput {
    const PerfPolicy& policy;
    RegressionPolicy on_regression = RegressionPolicy::revert_count_failure;
    bool higher_is_better = true;
    int pairs =
        9;  // maximum number of pairs: 3, 5 or 9; 1: one run of the candidate against the champion's recorded value
    int iteration = 0;
    std::string base, commit;  // HEAD, and the candidate
    Measurement candidate;     // of its profile
    std::string change_class;
    std::optional<double> upper_bound_step_ms;
    std::int64_t now_unix = 0;
    std::string unit = {};  // of the metric; empty: not known
};

struct ReviewDeps {
    // A fresh profile of this commit. An error ends the review: nothing is recorded.
    std::function<Result<Measurement>(const std::string& commit)> measure;
    // Whether something that is measured differs between two commits.
    std::function<Result<bool>(const std::string& from, const std::string& to)> differs;
    // What is going on, for people.
    std::function<void(const std::string& line)> say;
    // Which pair is measured next; may be empty.
    std::function<void(const std::string& step)> at_work = {};
};

struct Review {
    PerfDecision decision;
    PerfRecord record;                           // of the candidate
    std::vector<PerfRecord> before;              // baselines and A/A, in order: they come before it in the history
    std::optional<PerfRecord> champion;          // the new champion, if it has changed
    std::optional<PerfRecord> measured_against;  // as measured for the comparison
    bool base_shifted = false;
    int runs = 0;  // profiles that were taken
};
Result<Review> review(const PerfState& state, const ReviewInput& input, const ReviewDeps& deps);

// Writes a review into a state; returns how many earlier refusals are suspect now.
int apply_review(PerfState& state, const Review& review);

// Reasons to measure HEAD unchanged before the candidate is judged.
struct AaFacts {
    bool base_differs = false;    // from the last commit that was champion, baseline or looked at
    int since_last = 0;           // candidates judged since
    bool source_differs = false;  // the champion's number is of another kind than the candidate's
};
std::vector<std::string> aa_reasons(const AaFacts& facts);

}  // namespace gdnctl::loop
