// Parses codex's message about when a usage limit resets.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "core/time.h"

namespace gdnctl::codex {

// "… try again at 5:45 AM." or "… at Nov 24th, 2026 4:07 PM.", in this process's time zone, plus a minute. A time of
// day that passed less than an hour ago means now; an earlier one means tomorrow. nullopt: no time given.
std::optional<WallTime> reset_time_in(std::string_view message, WallTime now);

// "… try again in 1.5s", "20ms", "2m", "1h2m3s". nullopt: none given.
std::optional<std::chrono::milliseconds> retry_after_in(std::string_view message);

}  // namespace gdnctl::codex
