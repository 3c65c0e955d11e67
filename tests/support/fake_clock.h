// A clock that only moves when told to, or when someone sleeps on it.
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
    // Returns at once, with the clock `d` later. False, and no time passes, once stop is requested.
    bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) override;

    void advance(std::chrono::nanoseconds d);
    void jump_wall(std::chrono::milliseconds d);  // changes the date; monotonic time stays
    // Every call of monotonic() advances it by this much: time passes while code polls.
    void tick_per_look(std::chrono::milliseconds d);
    // Called first in every sleep_for: simulates what happens while the code under test sleeps.
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
