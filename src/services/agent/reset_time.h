// Parses codex's message about when a usage limit resets.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "core/time.h"

namespace gdnctl::codex {

// When the provider will answer again, plus a minute: "… try again at 5:45 AM." or "… at Nov 24th, 2026 4:07 PM." in
// this process's time zone, "… try again in 3 days 4 hours". A time of day is the nearest one. nullopt: none is given,
// it cannot be read, or it has passed, although the provider still refuses.
std::optional<WallTime> reset_time_in(std::string_view message, WallTime now);

// "… try again in 1.5s", "20ms", "1h2m3s", "2 minutes". nullopt: none given.
std::optional<std::chrono::milliseconds> retry_after_in(std::string_view message);

}  // namespace gdnctl::codex
