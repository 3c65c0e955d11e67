#include "harness/timing/rounds.h"

#include <algorithm>
#include <limits>

namespace gdnctl::harness {

namespace {

constexpr double k_noise = 1.35;

Result<double> seconds_of(const Subject& subject, const Clock& clock) {
    if (subject.before) GDNCTL_TRY(subject.before());
    const auto start = clock.monotonic();
    subject.run();
    const double seconds = std::chrono::duration<double>(clock.monotonic() - start).count();
    if (subject.after) GDNCTL_TRY(subject.after());
    return seconds;
}

// Median over rounds of subject's rate / other's.
double ratio_of_rates(const Subject& subject, const Subject& other) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < subject.seconds.size(); ++i) {
        ratios.push_back(subject.flop / subject.seconds[i] / (other.flop / other.seconds[i]));
    }
    return oracle::spread_of(std::move(ratios)).median;
}

}  // namespace

Status run_rounds(std::vector<Subject>& subjects, std::int64_t rounds, std::int64_t runs, Clock& clock,
                  std::stop_token stop) {
    for (Subject& s : subjects) GDNCTL_TRY(seconds_of(s, clock));
    for (std::int64_t round = 0; round < rounds; ++round) {
        for (Subject& s : subjects) {
            if (stop.stop_requested()) return fail(ErrorKind::interrupted, "stopped before all rounds were run");
            double least = std::numeric_limits<double>::infinity();
            for (std::int64_t i = 0; i < runs; ++i) {
                GDNCTL_TRY_ASSIGN(const double seconds, seconds_of(s, clock));
                least = std::min(least, seconds);
            }
            // A clock that does not advance would give a rate of infinity.
            s.seconds.push_back(std::max(least, 1e-9));
            if (s.check) GDNCTL_TRY(s.check());
        }
    }
    return {};
}

double ratio_of_times(const Subject& one, const Subject& other) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < one.seconds.size(); ++i) ratios.push_back(one.seconds[i] / other.seconds[i]);
    return oracle::spread_of(std::move(ratios)).median;
}

Timing timing_of(const Subject& subject, const Subject* sgemm, const Subject& peak) {
    Timing t;
    t.seconds = oracle::spread_of(subject.seconds);
    t.gflops = subject.flop / t.seconds.median * 1e-9;
    if (sgemm != nullptr) t.of_sgemm = ratio_of_rates(subject, *sgemm);
    t.of_peak = ratio_of_rates(subject, peak);
    t.noisy = t.seconds.median > k_noise * t.seconds.min;
    return t;
}

}  // namespace gdnctl::harness
