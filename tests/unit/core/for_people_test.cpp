// Numbers and times as people read them.
#include "core/for_people.h"

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <limits>

#include <doctest/doctest.h>

#include "core/text.h"

namespace gdnctl {

TEST_CASE("numbers for people: five significant digits at most, and no zeros that say nothing") {
    CHECK(number_for_people(8.123456789) == "8.1235");
    CHECK(number_for_people(10.0) == "10");
    CHECK(number_for_people(0.0) == "0");
    CHECK(number_for_people(-0.000123456789) == "-0.00012346");
    CHECK(number_for_people(123456.0) == "123460");
    CHECK(number_for_people(32768.0) == "32768");
    CHECK(number_for_people(9.99996) == "10");
    CHECK(number_for_people(99999.6) == "100000");
    CHECK(number_for_people(1.23456789e12) == "1.2346e+12");
    CHECK(number_for_people(1.2e-9) == "1.2e-09");
    CHECK(number_for_people(0.25, 2) == "0.25");
    CHECK(number_for_people(std::numeric_limits<double>::infinity()) == "inf");
    CHECK(quantity(8.25, "ms") == "8.25 ms");
    CHECK(quantity(8.25, "") == "8.25");
}

TEST_CASE("a change for people: its sign, but none for what is zero as shown") {
    CHECK(signed_number(1.346, 2) == "+1.35");
    CHECK(signed_number(-0.2, 2) == "-0.20");
    CHECK(signed_number(-0.004, 2) == "0.00");
    CHECK(signed_number(0.0, 1) == "0.0");
    CHECK(signed_number(-0.4, 0) == "0");
    CHECK(signed_number(-std::numeric_limits<double>::infinity(), 2) == "-inf");
}

TEST_CASE("numbers for people: what is read back is within half a unit of the last digit, whatever the number") {
    double value = 1.2345678e-7;
    for (int i = 0; i < 400; ++i) {
        for (const double sign : {1.0, -1.0}) {
            const std::string text = number_for_people(sign * value);
            const auto back = text::parse_double(text);
            REQUIRE_MESSAGE(back, text);
            REQUIRE_MESSAGE(std::abs(*back / (sign * value) - 1.0) <= 0.5001e-4, text);
        }
        value *= 1.1234567;
    }
}

TEST_CASE("times for people: of the zone of this machine, with its offset") {
    const char* const before = std::getenv("TZ");
    const std::string kept = before == nullptr ? "" : before;
    const WallTime t = *parse_iso8601("2026-03-10T16:53:07Z");
    setenv("TZ", "XXX-5:30", 1);
    tzset();
    CHECK(local_time(t) == "2026-03-10 22:23:07+05:30");
    CHECK(local_clock(t) == "22:23:07+05:30");
    setenv("TZ", "YYY3", 1);
    tzset();
    CHECK(local_time_of("2026-03-10T01:53:07Z") == "2026-03-09 22:53:07-03:00");
    CHECK(local_time_of("no time") == "no time");
    before == nullptr ? unsetenv("TZ") : setenv("TZ", kept.c_str(), 1);
    tzset();
}

}  // namespace gdnctl
