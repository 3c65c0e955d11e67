// Whether the clock that times a kernel is right: a kernel that has changed it has no time.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "oracle/judge/kernel_fault.h"
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

}  // namespace gdnctl::harness
