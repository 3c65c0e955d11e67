// Numbers and times as people read them. Files and JSON keep all digits, and UTC.
#pragma once

#include <string>
#include <string_view>

#include "core/time.h"

namespace gdnctl {

// At most `digits` significant digits, without zeros at the end: "8.1235", "0.00012346", "123460", "1.2346e+12".
std::string number_for_people(double value, int digits = 5);
// The same with its unit, where one is known: "8.1235 ms".
std::string quantity(double value, std::string_view unit, int digits = 5);

// In the zone of this machine, with its offset.
std::string local_time(WallTime t);   // 2026-03-10 17:53:07+01:00
std::string local_clock(WallTime t);  // 17:53:07+01:00
// Of a time as files have it (ISO 8601); a text that is none stays as it is.
std::string local_time_of(std::string_view iso8601);

}  // namespace gdnctl
