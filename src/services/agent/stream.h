// Accumulates the events of one attempt.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/clock.h"
#include "services/agent/agent.h"
#include "services/agent/events.h"

namespace gdnctl::codex {

class Stream {
public:
    // Processes one line received at `now`. Returns the event for people or the loop, if there is one.
    std::optional<AgentEvent> take(const Event& event, Clock::Monotonic now);

    bool has_open_command() const { return !m_open.empty(); }
    int left_open() const { return static_cast<int>(m_open.size()); }

    std::string thread_id;
    bool turn_completed = false;
    bool turn_failed = false;
    std::string failure;        // from turn.failed, else from the last error event
    std::string final_message;  // the last one
    std::optional<AgentTokens> usage;
    int commands = 0;
    int unknown_events = 0;
    int text_lines = 0;

private:
    std::optional<AgentEvent> take_item(const Event& event, Clock::Monotonic now);
    std::map<std::string, Clock::Monotonic> m_open;  // commands by item id
};

// Lines for people.
std::vector<std::string> render(const AgentEvent& event, bool show_file_updates);

}  // namespace gdnctl::codex
