// How long a TPU stays held: the lease that its users renew, the grace period before the first renewal, and the cap.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/time.h"
#include "platform/clock.h"

namespace gdnctl::devtpu {

inline constexpr std::int64_t k_detached_lease_s = 3600;

struct Terms {
    std::int64_t lease_s = 600;       // after this long without a renewal, the TPU is released
    std::int64_t grace_s = 1200;      // until the first renewal
    std::int64_t max_hold_s = 28800;  // in any case
};

// Error: usage (a term outside 1 s to one year).
Status check_terms(const Terms& terms);

// How often a client renews the lease: min(30 s, lease / 4).
std::chrono::milliseconds heartbeat_interval(const Terms& terms);

// Converts the terms to strings for the job's metadata, and back. Missing or invalid ones are the defaults.
void put_terms(std::map<std::string, std::string>& metadata, const Terms& terms);
Terms terms_of(const std::map<std::string, std::string>& metadata);

// When the lease ends without another renewal. `renewed`: the last renewal; nullopt: none yet.
WallTime lease_end(const Terms& terms, WallTime created, std::optional<WallTime> renewed);
WallTime cap_end(const Terms& terms, WallTime created);

enum class HoldEnd { stop, lease, max_hold, preempted };
std::string_view to_text(HoldEnd end);  // "stop", "lease", "max-hold", "preempted"
std::optional<HoldEnd> parse_hold_end(std::string_view text);

// The holder's decision, on the monotonic clock, so that setting the clock has no effect. The lease file's time counts
// when it changes, unless it is more than five minutes ahead.
class LeaseWatch {
public:
    LeaseWatch(const Terms& terms, Clock::Monotonic start) : m_terms(terms), m_start(start) {}

    // The lease file's time, which the holder itself sets at the start; nullopt: it cannot be read now.
    void see(std::optional<WallTime> modified, WallTime wall, Clock::Monotonic now);
    std::optional<HoldEnd> over(Clock::Monotonic now) const;

private:
    Terms m_terms;
    Clock::Monotonic m_start;
    std::optional<WallTime> m_modified;         // last seen value
    std::optional<Clock::Monotonic> m_renewed;  // nullopt: never
};

}  // namespace gdnctl::devtpu
