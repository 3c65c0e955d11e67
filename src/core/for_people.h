// Numbers and times formatted for people. Files and JSON keep all digits and use UTC.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/time.h"

namespace gdnctl {

// At most `digits` significant digits, without trailing zeros: "8.1235", "0.00012346", "123460", "1.2346e+12".
std::string number_for_people(double value, int digits = 5);
// The same, followed by the unit if there is one: "8.1235 ms".
std::string quantity(double value, std::string_view unit, int digits = 5);

// A change with its sign: "+1.35", "-0.20"; "0.00" where nothing but zeros is left.
std::string signed_number(double value, int decimals);

std::string grouped(std::int64_t number);  // 1234567 -> "1,234,567"

// In this machine's time zone, with its offset.
std::string local_time(WallTime t);   // 2026-03-10 17:53:07+01:00
std::string local_clock(WallTime t);  // 17:53:07+01:00
// Converts a time from a file (ISO 8601). Text that is not such a time is returned unchanged.
std::string local_time_of(std::string_view iso8601);

}  // namespace gdnctl
