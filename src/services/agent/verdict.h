// How an attempt of codex ended and what follows from it, judged by its exit status, events, rollout and messages.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "services/agent/agent.h"
#include "services/agent/rollout.h"

namespace gdnctl::codex {

// When the provider will answer again, plus a minute: "… try again at 5:45 AM." or "… at Nov 24th, 2026 4:07 PM." in
// this process's time zone, "… try again in 3 days 4 hours". A time of day is the nearest one. nullopt: none is given,
// it cannot be read, or it has passed, although the provider still refuses.
std::optional<WallTime> reset_time_in(std::string_view message, WallTime now);

// "… try again in 1.5s", "20ms", "1h2m3s", "2 minutes". nullopt: none given.
std::optional<std::chrono::milliseconds> retry_after_in(std::string_view message);

// Classifies the result of an attempt.

struct Evidence {
    // Why we ended it; nullopt: it ended by itself.
    std::optional<AgentClass> our_doing;
    std::string our_reason;
    int exit_code = 0;   // killed by signal N: -N
    bool events = true;  // it wrote JSON
    bool thread_started = false;
    bool turn_completed = false;
    bool turn_failed = false;
    bool aborted = false;
    std::string failure;            // from turn.failed or the last error
    std::optional<ErrorInfo> info;  // from the rollout
    std::string first_complaint;    // the first line of standard error that is an error
    std::vector<AgentRateWindow> rate_windows;
    WallTime now;
};

struct Verdict {
    AgentClass kind = AgentClass::failed;
    AgentAction action = AgentAction::count;
    int exit_status = 1;
    std::string reason;
    bool explained = false;  // `reason` is codex's own explanation of a failed turn
    std::string stop_reason;
    std::optional<std::chrono::milliseconds> retry_after;
    std::optional<WallTime> not_before;
};

// Pure, except for the time zone.
Verdict judge(const Evidence& evidence);

// The class of a failed turn. `info` decides if it can; the text alone gives the same class for every cause that it
// names.
AgentClass class_of_failure(std::string_view message, const std::optional<ErrorInfo>& info);

AgentAction action_of(AgentClass kind);

// For programs other than codex: what a failed one said at its end, if that blames the model's provider (a limit, an
// outage, no connection). `exit_status` of the result is not set.
std::optional<Verdict> provider_trouble(std::string_view last_lines, WallTime now);

}  // namespace gdnctl::codex
