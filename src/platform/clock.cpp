#include "platform/clock.h"

#include <condition_variable>
#include <mutex>

namespace gdnctl {

namespace {

class SystemClock final : public Clock {
public:
    WallTime wall() const override {
        return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
    }

    Monotonic monotonic() const override { return std::chrono::steady_clock::now(); }

    bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) override {
        // A year is enough for any wait, and keeps the deadline from overflowing.
        constexpr std::chrono::milliseconds k_longest = std::chrono::hours(24 * 366);
        std::mutex mutex;
        std::condition_variable_any wakes;
        std::unique_lock lock(mutex);
        return !wakes.wait_for(lock, stop, std::min(d, k_longest), [&] { return stop.stop_requested(); });
    }
};

}  // namespace

Clock& system_clock() {
    static SystemClock clock;
    return clock;
}

}  // namespace gdnctl
