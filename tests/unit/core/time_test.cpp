#include "core/time.h"

#include <doctest/doctest.h>

using namespace gdnctl;
using std::chrono::milliseconds;

TEST_CASE("time: one instant in the three spellings") {
    const WallTime t = *parse_iso8601("2026-03-10T16:53:07Z");
    CHECK(format_iso8601(t) == "2026-03-10T16:53:07Z");
    CHECK(format_compact_utc(t) == "20260310T165307");
    CHECK(format_log_time(t) == "2026-03-10 16:53:07");
    CHECK(format_iso8601(WallTime{} - milliseconds(1)) == "1969-12-31T23:59:59Z");
}

TEST_CASE("time: ISO 8601 with offset, fraction, date alone") {
    CHECK(parse_iso8601("2026-03-10T18:53:07+02:00") == parse_iso8601("2026-03-10T16:53:07Z"));
    CHECK(parse_iso8601("2026-03-10T16:53Z") == parse_iso8601("2026-03-10T16:53:00Z"));
    CHECK(*parse_iso8601("2026-03-10T16:53:07.250Z") - *parse_iso8601("2026-03-10T16:53:07Z") == milliseconds(250));
    CHECK(parse_iso8601("2026-02-18") == parse_iso8601("2026-02-18T00:00:00Z"));
    for (const char* bad : {"", "2026-2-18", "2026-02-30", "2026-02-18T25:00Z", "2026-02-18T12:55:20", "18.02.2026",
                            "2026-02-18T12:55:20Zx", "2026-02-18T12:55:20.Z", "2026-13-01"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_iso8601(bad).has_value());
    }
}

TEST_CASE("time: durations in the unit that fits") {
    CHECK(format_duration(milliseconds(850)) == "850 ms");
    CHECK(format_duration(milliseconds(12400)) == "12.4 s");
    CHECK(format_duration(milliseconds(59999)) == "1 min 0 s");
    CHECK(format_duration(milliseconds(200000)) == "3 min 20 s");
    CHECK(format_duration(std::chrono::minutes(125)) == "2 h 05 min");
    CHECK(format_duration(milliseconds(-850)) == "-850 ms");
}
