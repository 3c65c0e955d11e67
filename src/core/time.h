// Times as people and files show them. platform has the clocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gdnctl {

using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;  // UTC

std::string format_iso8601(WallTime t);      // 2026-03-10T16:53:07Z
std::string format_compact_utc(WallTime t);  // 20260310T165307
std::string format_log_time(WallTime t);     // 2026-03-10 16:53:07
// Reads 2026-03-10, 2026-03-10T16:53:07Z, …+02:00, …16:53Z; a date alone means midnight UTC. nullopt: anything else.
std::optional<WallTime> parse_iso8601(std::string_view s);
std::string format_duration(std::chrono::milliseconds d);  // "850 ms", "12.4 s", "3 min 20 s", "2 h 05 min"

}  // namespace gdnctl
