// When a usage limit resets, as codex tells people.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "core/time.h"

namespace gdnctl::codex {

// "… try again at 5:45 AM." or "… at Nov 24th, 2026 4:07 PM.", in this process's time zone, plus a minute. A time of
// day that passed less than an hour ago is now; one that passed earlier is tomorrow's. nullopt: it says no time.
std::optional<WallTime> reset_time_in(std::string_view message, WallTime now);

// "… try again in 1.5s", "20ms", "2m", "1h2m3s". nullopt: it says none.
std::optional<std::chrono::milliseconds> retry_after_in(std::string_view message);

}  // namespace gdnctl::codex
