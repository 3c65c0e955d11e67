// One line of `codex exec --json`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/agent/agent.h"

namespace gdnctl::codex {

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

}  // namespace gdnctl::codex
