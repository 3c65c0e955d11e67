// What the two agents make of a request alike.
#pragma once

#include <string>
#include <string_view>

#include "platform/process.h"
#include "services/agent/agent.h"

namespace gdnctl::codex {

// Errors: usage (worktree, prompt or loop id is missing).
Status check_request(const AgentRequest& request);
Status remove_stale(const std::filesystem::path& path);
// The agent may have cleaned its tree, and with it the folder of its files.
Status make_folder_again(const AgentFiles& files);
// Session, environment, prompt, limits and sweep; the caller adds argv and what it listens to.
ProcessSpec base_spec(const AgentRequest& request);
// Whether something that `leader` started runs in a session of its own, as tool commands do.
bool has_foreign_sessions(pid_t leader);
AgentTokens less(const AgentTokens& tokens, const AgentTokens& before);  // never below 0
std::string quoted(std::string_view text);                               // as a JSON string

}  // namespace gdnctl::codex
