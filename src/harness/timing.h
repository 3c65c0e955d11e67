// Whether the clock that times a kernel is right: a kernel that has changed it has no time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/result.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/judge/kernel.h"
#include "oracle/simd/isa.h"
#include "platform/clock.h"

namespace gdnctl::harness {

// Reads the clock between two readings by system call, so that a pause between them does not matter.
class Stopwatch {
public:
    // `clock` must outlive it.
    explicit Stopwatch(const Clock& clock)
        : m_clock(clock),
          m_first(clock.monotonic_by_kernel()),
          m_start(clock.monotonic()),
          m_second(clock.monotonic_by_kernel()) {}

    struct Elapsed {
        double clock = 0, at_least = 0, at_most = 0;  // seconds; the latter two by the kernel
    };
    Elapsed elapsed() const {
        const auto second = m_clock.monotonic_by_kernel();
        const auto end = m_clock.monotonic();
        const auto first = m_clock.monotonic_by_kernel();
        return {seconds(end - m_start), seconds(second - m_second), seconds(first - m_first)};
    }

private:
    static double seconds(std::chrono::nanoseconds d) { return std::chrono::duration<double>(d).count(); }

    const Clock& m_clock;
    Clock::Monotonic m_first, m_start, m_second;
};

// The fault of a kernel that ran since `time` was made, where the two clocks disagree about how long.
inline std::optional<oracle::KernelFault> wrong_clock(const Stopwatch& time) {
    constexpr double k_relative = 0.01, k_seconds = 100e-6;  // virtual machines read the two differently
    const Stopwatch::Elapsed passed = time.elapsed();
    const double slack = k_relative * passed.at_most + k_seconds;
    if (passed.clock >= passed.at_least - slack && passed.clock <= passed.at_most + slack) return std::nullopt;
    return oracle::KernelFault{
        oracle::KernelFaultKind::impossible,
        fmt::format("gdnctl's clock says {:.3g} ms, a system call {:.3g} ms: something changed the clock of gdnctl",
                    passed.clock * 1e3, passed.at_least * 1e3),
        {}};
}

// What no kernel can be faster than.

// How many times as many operations as fp32 ones a processor with these flags (of /proc/cpuinfo) may do on shorter
// types.
double gain_of_short_types(std::string_view cpuinfo);

// The least that `run` takes of some runs.
double least_seconds(const std::function<void()>& run, Clock& clock, int runs = 8);

// Operations a second that `threads` threads cannot exceed on this processor: the best of many short bursts of
// multiply-adds in registers on one thread, times the threads and that gain. Short, and on one, because a machine that
// is busy would look slow, and honest kernels impossible. Takes some 60 ms.
double most_flop_a_second(int threads, Clock& clock);

// Seconds in which `threads` threads can at best read and write `bytes` in all, half of each: half the best time of one
// thread with its share, since other caches may be nearer. Of more than 64 MiB a share, what 64 MiB take.
double least_seconds_of_bytes(double bytes, int threads, Clock& clock);

// The fault of a kernel that took `seconds` for what takes `least` seconds at best, with a margin; nullopt: it may be.
std::optional<oracle::KernelFault> impossible_time(double seconds, double least, int threads);

// The rounds of oracle bench: subjects in turn, so that whatever slows the machine slows them all.

// Something timed: a kernel, the matrix product, or bare multiply-adds.
struct Subject {
    std::string name;
    double flop = 0;  // that count, of one run
    std::function<void()> run;
    std::function<Status()> check;                    // after each round, outside the time; may be empty
    std::vector<double> seconds;                      // one a round: the least of its runs
    std::function<Status()> before = {}, after = {};  // around each run, outside the time; may be empty
    // The time that counts of a run that took so long by our clock; empty: that.
    std::function<double(double)> counted = {};
    std::function<std::optional<double>()> device = {};  // after a run: its seconds on an accelerator; may be empty
    std::vector<double> device_seconds = {};             // one a round: the median of its runs
};

// Runs every subject once untimed, then `rounds` rounds of `runs` runs each. `at` hears, outside of any time, which
// round begins (0: the untimed one) and with which subject. Error: interrupted, or what a check says.
Status run_rounds(std::vector<Subject>& subjects, std::int64_t rounds, std::int64_t runs, Clock& clock,
                  std::stop_token stop, const std::function<void(std::int64_t, const Subject&)>& at = {});

// The subject with its times on the accelerator; nullopt: not known in all rounds, or too short to be measured.
std::optional<Subject> on_device(const Subject& subject);

struct Timing {
    oracle::Spread seconds;
    double gflops = 0;               // at the median
    std::optional<double> of_sgemm;  // median over rounds of the ratio of rates; nullopt: not measured
    double of_peak = 0;              // the same against bare multiply-adds
    bool noisy = false;              // median beyond 1.35 times the minimum
};

// Median over rounds of one's time over other's.
double ratio_of_times(const Subject& one, const Subject& other);

// The same median with the interval that has it in 95 of 100 draws of as many rounds.
struct RatioOfTimes {
    double median = 1, low = 1, high = 1;
};
RatioOfTimes interval_of_ratio(const Subject& one, const Subject& other);
// Whether one says that its first subject is faster, the other that it is slower.
bool disagree(const RatioOfTimes& one, const RatioOfTimes& other);

// `sgemm` may be nullptr.
Timing timing_of(const Subject& subject, const Subject* sgemm, const Subject& peak);

// The context of measured times: the machine, the matrix product, and the memory used.

struct Machine {
    std::string cpu;
    std::string compiler;
    double load = 0;
};
Machine this_machine();

inline constexpr int k_sgemm_size = 2048;

struct SgemmSubject {
    Subject subject;  // of matrices that it keeps
    std::string library;
};
// The matrix product of OpenBLAS with kernels for `isa`. Error: there is none.
Result<SgemmSubject> sgemm_subject(oracle::Isa isa, int threads);

// The most memory that this process had since it was last asked to forget; nullopt: this system does not say.
std::optional<std::int64_t> peak_rss();
void forget_peak_rss();

}  // namespace gdnctl::harness
