// A clock that moves only when told to, or when someone sleeps on it.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "platform/clock.h"

namespace gdnctl::test {

class FakeClock final : public Clock {
public:
    explicit FakeClock(WallTime now = WallTime(std::chrono::milliseconds(1'773'161'587'000))) : m_wall(now) {}

    WallTime wall() const override;
    Monotonic monotonic() const override;
    // Returns at once; the clock is `d` later. False, and no time passes, once stop is requested.
    bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) override;

    void advance(std::chrono::nanoseconds d);
    void jump_wall(std::chrono::milliseconds d);  // someone sets the date; monotonic time is not touched
    // Every look at monotonic() makes it this much later: time passes while code polls.
    void tick_per_look(std::chrono::milliseconds d);
    // Called first in every sleep_for: what happens while the code under test believes itself asleep.
    void when_asleep(std::function<void()> action);
    std::vector<std::chrono::milliseconds> sleeps() const;

private:
    mutable std::mutex m_mutex;
    WallTime m_wall;
    mutable Monotonic m_monotonic{std::chrono::hours(1)};
    std::chrono::milliseconds m_tick{0};
    std::function<void()> m_when_asleep;
    std::vector<std::chrono::milliseconds> m_sleeps;
};

}  // namespace gdnctl::test
