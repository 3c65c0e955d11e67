// Time is injected, so that tests need not wait.
#pragma once

#include <chrono>
#include <stop_token>

#include "core/time.h"

namespace gdnctl {

class Clock {
public:
    using Monotonic = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;

    virtual ~Clock() = default;
    virtual WallTime wall() const = 0;
    // For durations and deadlines; never goes backwards.
    virtual Monotonic monotonic() const = 0;
    // The same time by system call, past libraries and the code that the kernel maps into every process.
    virtual Monotonic monotonic_by_kernel() const { return monotonic(); }
    // Sleeps for `d` or until `stop` is requested; true: it slept for all of `d`.
    virtual bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) = 0;
};

// The system's clock; thread-safe.
Clock& system_clock();

}  // namespace gdnctl
