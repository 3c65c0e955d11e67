#include "support/fake_clock.h"

namespace gdnctl::test {

WallTime FakeClock::wall() const {
    const std::lock_guard lock(m_mutex);
    return m_wall;
}

Clock::Monotonic FakeClock::monotonic() const {
    const std::lock_guard lock(m_mutex);
    m_monotonic += m_tick;
    return m_monotonic;
}

bool FakeClock::sleep_for(std::chrono::milliseconds d, std::stop_token stop) {
    std::function<void()> action;
    {
        const std::lock_guard lock(m_mutex);
        action = m_when_asleep;
    }
    if (action) action();
    if (stop.stop_requested()) return false;
    const std::lock_guard lock(m_mutex);
    m_sleeps.push_back(d);
    m_wall += d;
    m_monotonic += d;
    return true;
}

void FakeClock::advance(std::chrono::nanoseconds d) {
    const std::lock_guard lock(m_mutex);
    m_wall += std::chrono::duration_cast<WallTime::duration>(d);
    m_monotonic += d;
}

void FakeClock::jump_wall(std::chrono::milliseconds d) {
    const std::lock_guard lock(m_mutex);
    m_wall += d;
}

void FakeClock::tick_per_look(std::chrono::milliseconds d) {
    const std::lock_guard lock(m_mutex);
    m_tick = d;
}

void FakeClock::when_asleep(std::function<void()> action) {
    const std::lock_guard lock(m_mutex);
    m_when_asleep = std::move(action);
}

std::vector<std::chrono::milliseconds> FakeClock::sleeps() const {
    const std::lock_guard lock(m_mutex);
    return m_sleeps;
}

}  // namespace gdnctl::test
