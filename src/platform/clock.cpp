#include "platform/clock.h"

#include <condition_variable>
#include <ctime>
#include <mutex>

#include <sys/syscall.h>
#include <unistd.h>

#include "platform/progress.h"

namespace gdnctl {

namespace {

class SystemClock final : public Clock {
public:
    WallTime wall() const override {
        return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
    }

    Monotonic monotonic() const override { return std::chrono::steady_clock::now(); }

    Monotonic monotonic_by_kernel() const override {
        timespec now{};
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        return Monotonic(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
    }

    bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) override {
        // A year is enough for any wait, and keeps the deadline from overflowing.
        constexpr std::chrono::milliseconds k_longest = std::chrono::hours(24 * 366);
        std::mutex mutex;
        std::condition_variable_any wakes;
        std::unique_lock lock(mutex);
        const auto stopped = [&] { return stop.stop_requested(); };
        constexpr std::chrono::milliseconds k_tick{250};
        auto left = std::min(d, k_longest);
        for (Progress::keep_ticking(); Progress::is_live() && left > k_tick; left -= k_tick) {
            if (wakes.wait_for(lock, stop, k_tick, stopped)) return false;
            Progress::keep_ticking();
        }
        return !wakes.wait_for(lock, stop, left, stopped);
    }
};

}  // namespace

Clock& system_clock() {
    static SystemClock clock;
    return clock;
}

}  // namespace gdnctl
