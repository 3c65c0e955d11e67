#include "platform/clock.h"

#include <thread>

#include <doctest/doctest.h>

#include "platform/env.h"
#include "support/fake_env.h"

using namespace gdnctl;
using namespace std::chrono_literals;

TEST_CASE("clock: sleeping to the end and not at all") {
    Clock& clock = system_clock();
    const auto before = clock.monotonic();
    CHECK(clock.sleep_for(20ms, {}));
    CHECK(clock.monotonic() - before >= 20ms);
    CHECK(clock.sleep_for(0ms, {}));
    CHECK(clock.sleep_for(-5ms, {}));
    CHECK(clock.wall() > WallTime(std::chrono::milliseconds(1'577'836'800'000)));  // 2020
}

TEST_CASE("clock: a stop request in another of the threads ends even the longest sleep") {
    std::stop_source stop;
    std::jthread stopper([&] { stop.request_stop(); });
    CHECK_FALSE(system_clock().sleep_for(std::chrono::milliseconds::max(), stop.get_token()));
    CHECK_FALSE(system_clock().sleep_for(1h, stop.get_token()));
}

TEST_CASE("env: set, empty and missing") {
    setenv("GDNCTL_TEST_EMPTY", "", 1);
    setenv("GDNCTL_TEST_FULL", "a=b", 1);
    CHECK(process_env().get("GDNCTL_TEST_EMPTY") == "");
    CHECK(process_env().get("GDNCTL_TEST_FULL") == "a=b");
    CHECK(process_env().get("GDNCTL_TEST_MISSING") == std::nullopt);
    CHECK(process_env().all().at("GDNCTL_TEST_FULL") == "a=b");
    unsetenv("GDNCTL_TEST_EMPTY");
    unsetenv("GDNCTL_TEST_FULL");
}
