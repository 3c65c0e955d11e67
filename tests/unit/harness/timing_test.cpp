// Rounds and figures of oracle bench, on a clock that each subject moves itself.
#include "harness/timing.h"

#include <doctest/doctest.h>

#include "support/fake_clock.h"

using namespace gdnctl;
using namespace gdnctl::harness;

namespace {

void pass(test::FakeClock& clock, double seconds) {
    clock.advance(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

// Takes the given seconds, one after another; `order` gets its name at each run.
Subject subject(std::string name, double flop, std::vector<double> takes, test::FakeClock& clock, std::string& order) {
    const auto run = [&clock, &order, name, takes = std::move(takes), next = std::size_t{0}]() mutable {
        order += name;
        pass(clock, takes.at(next++));
    };
    return {name, flop, run, {}, {}};
}

}  // namespace

TEST_CASE("bench: subjects run in turn, and the least run of a round counts") {
    test::FakeClock clock;
    std::string order;
    std::vector<Subject> subjects;
    subjects.push_back(subject("a", 1e9, {9, 2, 3, 4, 1}, clock, order));
    subjects.push_back(subject("b", 2e9, {9, 1, 1, 1, 1}, clock, order));
    REQUIRE(run_rounds(subjects, 2, 2, clock, {}));
    CHECK(order == "abaabbaabb");
    CHECK(subjects[0].seconds == std::vector<double>{2, 1});
    const Timing t = timing_of(subjects[0], nullptr, subjects[1]);
    CHECK(t.seconds.min == 1);
    CHECK(t.seconds.median == 1.5);
    CHECK(t.seconds.max == 2);
    CHECK(t.gflops == doctest::Approx(1 / 1.5));
    CHECK(!t.of_sgemm);
    // Ratios of rates, round by round: 0.5 / 2 and 1 / 2.
    CHECK(t.of_peak == doctest::Approx(0.375));
    CHECK(t.noisy);
    CHECK(*timing_of(subjects[1], &subjects[0], subjects[1]).of_sgemm == doctest::Approx(3));
    CHECK(!timing_of(subjects[1], nullptr, subjects[1]).noisy);
}

TEST_CASE("bench: the time on the device is the median of a round's runs, if all rounds have one") {
    test::FakeClock clock;
    std::string order;
    std::vector<Subject> subjects;
    subjects.push_back(subject("a", 1, {9, 2, 3, 4, 1, 2, 2}, clock, order));
    std::vector<double> there = {9, 5, 1, 3, 8, 6, 7};
    subjects[0].device = [&there, next = std::size_t{0}]() mutable { return std::optional(there.at(next++)); };
    CHECK_FALSE(on_device(subjects[0]));
    REQUIRE(run_rounds(subjects, 2, 3, clock, {}));
    REQUIRE(on_device(subjects[0]));
    CHECK(on_device(subjects[0])->seconds == std::vector<double>{3, 7});
    CHECK(subjects[0].seconds == std::vector<double>{2, 1});
    subjects[0].device_seconds[1] = -0.1;
    CHECK_FALSE(on_device(subjects[0]));
    subjects[0].device_seconds.pop_back();
    CHECK_FALSE(on_device(subjects[0]));
}

TEST_CASE("bench: ratios disagree if one is surely above 1 and the other surely below") {
    CHECK(disagree({1.2, 1.1, 1.3}, {0.8, 0.7, 0.9}));
    CHECK(disagree({0.8, 0.7, 0.9}, {1.2, 1.1, 1.3}));
    CHECK_FALSE(disagree({1.2, 0.9, 1.3}, {0.8, 0.7, 0.9}));
    CHECK_FALSE(disagree({1.2, 1.1, 1.3}, {3, 2, 4}));
    CHECK_FALSE(disagree({0.8, 0.7, 0.9}, {1, 1, 1}));
}

TEST_CASE("bench: a check that fails and a stop end the rounds") {
    test::FakeClock clock;
    std::string order;
    std::vector<Subject> subjects;
    subjects.push_back(subject("a", 1, {1, 1, 1, 1}, clock, order));
    std::stop_source source;
    source.request_stop();
    CHECK(run_rounds(subjects, 1, 1, clock, source.get_token()).error().kind == ErrorKind::interrupted);
    subjects[0].check = [] { return Status(fail(ErrorKind::check_failed, "differs")); };
    CHECK(run_rounds(subjects, 1, 1, clock, {}).error().message == "differs");
}

TEST_CASE("bench: what surrounds a run is not timed, and an error there ends the rounds") {
    test::FakeClock clock;
    std::string order;
    std::vector<Subject> subjects;
    subjects.push_back(subject("a", 1e9, {9, 2, 3}, clock, order));
    subjects[0].before = [&]() -> Status {
        order += '<';
        pass(clock, 100);
        return {};
    };
    subjects[0].after = [&]() -> Status {
        order += '>';
        pass(clock, 100);
        return {};
    };
    REQUIRE(run_rounds(subjects, 1, 2, clock, {}));
    CHECK(order == "<a><a><a>");
    CHECK(subjects[0].seconds == std::vector<double>{2});
    subjects[0].before = []() -> Status { return fail(ErrorKind::local_io, "no"); };
    CHECK_FALSE(run_rounds(subjects, 1, 2, clock, {}));
}

TEST_CASE("bench: a time below what the processor needs at the very least is impossible") {
    CHECK_FALSE(impossible_time(1, 1, 1));
    CHECK_FALSE(impossible_time(0.81, 1, 1));
    CHECK_FALSE(impossible_time(0, 0, 1));
    const auto fault = impossible_time(0.001, 0.002, 2);
    REQUIRE(fault);
    CHECK(fault->kind == oracle::KernelFaultKind::impossible);
    CHECK(fault->text.find("took 1 ms for work that needs at least 2 ms on 2 threads") == 0);
}

TEST_CASE("bench: what the processor may gain by short types is granted") {
    CHECK(gain_of_short_types("model name\t: X\nflags\t\t: fpu avx2 avx512f\n") == 1);
    CHECK(gain_of_short_types("flags\t\t: fpu avx512f avx512_bf16\n") == 2);
    CHECK(gain_of_short_types("flags\t\t: avx512_fp16 amx_bf16 amx_tile\n") == 16);
    CHECK(gain_of_short_types("") == 1);
    CHECK(gain_of_short_types("bugs : amx_bf16\n") == 1);
}

namespace {

// Every burst takes a second, but one that takes a millisecond.
class BusyClock final : public gdnctl::Clock {
public:
    gdnctl::WallTime wall() const override { return {}; }
    Monotonic monotonic() const override {
        ++m_looks;
        m_now += m_looks == k_quiet ? std::chrono::milliseconds(1) : std::chrono::milliseconds(1000);
        return m_now;
    }
    bool sleep_for(std::chrono::milliseconds, std::stop_token) override { return true; }

private:
    static constexpr int k_quiet = 102;
    mutable int m_looks = 0;
    mutable Monotonic m_now{std::chrono::hours(1)};
};

}  // namespace

TEST_CASE("bench: one quiet moment is enough to see what a processor can do, and a busy one hides no thread") {
    test::FakeClock seconds;
    seconds.tick_per_look(std::chrono::milliseconds(1000));
    BusyClock busy;
    const double slow = most_flop_a_second(1, seconds);
    REQUIRE(slow > 0);
    CHECK(most_flop_a_second(1, busy) == doctest::Approx(1000 * slow));
    CHECK(most_flop_a_second(3, seconds) == doctest::Approx(3 * slow));
}

TEST_CASE("bench: the least time of bytes is half of the best one of a thread with its share") {
    test::FakeClock seconds;
    seconds.tick_per_look(std::chrono::milliseconds(1000));
    CHECK(least_seconds_of_bytes(1 << 20, 1, seconds) == 0.5);
    CHECK(least_seconds_of_bytes(0, 2, seconds) == 0);
    CHECK(least_seconds_of_bytes(512 << 20, 2, seconds) == 0.5 * 4);
    const double one = least_seconds_of_bytes(32 << 20, 1, system_clock());
    CHECK(one > 0);
}

namespace {

// The clock of a process that something has slowed down or sped up.
class ChangedClock final : public gdnctl::Clock {
public:
    explicit ChangedClock(double speed) : m_speed(speed) {}
    gdnctl::WallTime wall() const override { return {}; }
    Monotonic monotonic() const override {
        return Monotonic(std::chrono::nanoseconds(static_cast<std::int64_t>(m_speed * static_cast<double>(m_now))));
    }
    Monotonic monotonic_by_kernel() const override { return Monotonic(std::chrono::nanoseconds(m_now)); }
    bool sleep_for(std::chrono::milliseconds d, std::stop_token) override {
        m_now += std::chrono::nanoseconds(d).count();
        return true;
    }

private:
    double m_speed;
    std::int64_t m_now = 3'600'000'000'000;
};

std::optional<oracle::KernelFault> timed_with(double speed, std::chrono::milliseconds takes) {
    ChangedClock clock(speed);
    const Stopwatch time(clock);
    clock.sleep_for(takes, {});
    return wrong_clock(time);
}

}  // namespace

TEST_CASE("bench: a clock that something has changed is a fault of the kernel") {
    using namespace std::chrono_literals;
    CHECK_FALSE(timed_with(1, 0ms));
    CHECK_FALSE(timed_with(1, 10000ms));
    CHECK_FALSE(timed_with(1.005, 10000ms));
    CHECK_FALSE(timed_with(0.5, 0ms));
    for (const double speed : {0.0, 0.5, 0.97, 2.0}) {
        CAPTURE(speed);
        const auto fault = timed_with(speed, 150ms);
        REQUIRE(fault);
        CHECK(fault->kind == oracle::KernelFaultKind::impossible);
    }
    CHECK(timed_with(0.5, 150ms)->text.find("gdnctl's clock says 75 ms, a system call 150 ms") == 0);
}

TEST_CASE("bench: a pause between two looks at the clock is not a wrong clock") {
    test::FakeClock clock;
    clock.tick_per_look(std::chrono::milliseconds(7000));
    const Stopwatch time(clock);
    clock.advance(std::chrono::milliseconds(3));
    CHECK_FALSE(wrong_clock(time));
    // Both are the system's.
    const Stopwatch real(system_clock());
    CHECK_FALSE(wrong_clock(real));
}
