// What codex prints while it works: its events with --json, or its text for people, as one stream of plain values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "platform/clock.h"
#include "services/agent/agent.h"

namespace gdnctl::codex {

std::optional<std::int64_t> integer_field(const Json& object, std::string_view name);
// {input_tokens, cached_input_tokens, output_tokens, reasoning_output_tokens}; nullopt: not such an object.
std::optional<AgentTokens> tokens_of(const Json& usage);

// One line of `codex exec --json`.

struct Item {
    std::string id;
    std::string type;    // command_execution, file_change, agent_message, reasoning, web_search, error, or a newer type
    std::string text;    // message, executed command, or query
    std::string output;  // of a command
    std::string status;  // in_progress, completed, failed, declined
    std::optional<int> exit_code;
    std::vector<std::filesystem::path> files;
};

struct Event {
    enum class Type {
        text,     // not a JSON object: a stray or torn line
        unknown,  // an object of an unknown type
        thread_started,
        turn_started,
        turn_completed,
        turn_failed,
        item_started,
        item_updated,
        item_completed,
        error,  // not fatal by itself
    };
    Type type = Type::text;
    std::string thread_id;
    std::string message;               // turn_failed, error
    std::optional<AgentTokens> usage;  // turn_completed; of the whole thread
    Item item;
};

// Pure and total: any bytes give an event. Invalid UTF-8 is repaired, and a missing field is empty.
Event parse_event(std::string_view line);

// `ls` for "/bin/bash -lc 'ls'"; anything else unchanged.
std::string shown_command(std::string_view command);

// Whether the event shows progress; retrying a lost connection does not.
bool is_progress(const Event& event);

// Accumulates the events of one attempt.

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

// Parses codex's output for people (standard error and standard output combined), for programs without events.

class HumanReader {
public:
    void take(std::string_view line, Stream& stream);
    std::string model;

private:
    bool m_tokens_follow = false;
    int m_rules = 0;  // "--------" lines so far: the banner is between the first two
};

// Whether a line of standard error is an error rather than a warning.
bool is_complaint(std::string_view line);

}  // namespace gdnctl::codex
