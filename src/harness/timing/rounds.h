// The rounds of oracle bench: subjects in turn, so that whatever slows the machine slows them all.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "oracle/gdn/bench/bench.h"
#include "platform/clock.h"

namespace gdnctl::harness {

// Something timed: a kernel, the matrix product, or bare multiply-adds.
struct Subject {
    std::string name;
    double flop = 0;  // that count, of one run
    std::function<void()> run;
    std::function<Status()> check;                    // after each round, outside the time; may be empty
    std::vector<double> seconds;                      // one a round: the least of its runs
    std::function<Status()> before = {}, after = {};  // around each run, outside the time; may be empty
};

// Runs every subject once untimed, then `rounds` rounds of `runs` runs each. Error: interrupted, or what a check says.
Status run_rounds(std::vector<Subject>& subjects, std::int64_t rounds, std::int64_t runs, Clock& clock,
                  std::stop_token stop);

struct Timing {
    oracle::Spread seconds;
    double gflops = 0;               // at the median
    std::optional<double> of_sgemm;  // median over rounds of the ratio of rates; nullopt: not measured
    double of_peak = 0;              // the same against bare multiply-adds
    bool noisy = false;              // median beyond 1.35 times the minimum
};

// Median over rounds of one's time over other's.
double ratio_of_times(const Subject& one, const Subject& other);

// `sgemm` may be nullptr.
Timing timing_of(const Subject& subject, const Subject* sgemm, const Subject& peak);

}  // namespace gdnctl::harness
