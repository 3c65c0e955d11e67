// What an attempt of either agent does with its request: checks it, starts the program, keeps its transcripts.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/result.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "services/agent/agent.h"

namespace gdnctl::codex {

// Errors: usage (worktree, prompt or loop id is missing).
Status check_request(const AgentRequest& request);
Status remove_stale(const std::filesystem::path& path);
// Creates the folder of its files again, in case the agent deleted it while cleaning its tree.
Status make_folder_again(const AgentFiles& files);
// Session, environment, prompt, limits and sweep; the caller adds argv and callbacks.
ProcessSpec base_spec(const AgentRequest& request);
// Whether something that `leader` started runs in a session of its own, as tool commands do.
bool has_foreign_sessions(pid_t leader);
AgentTokens less(const AgentTokens& tokens, const AgentTokens& before);  // never below 0
std::string quoted(std::string_view text);                               // as a JSON string

// A file that grows line by line during an attempt, with secrets masked.

class Transcript {
public:
    // Creates the file (0600), replacing an old one; an empty path discards everything. Error: local_io.
    Status open(const std::filesystem::path& path);
    void line(std::string_view text);
    bool failed() const { return m_error != 0; }
    Status close();  // the first error, if any: local_io

private:
    std::filesystem::path m_path;
    UniqueFd m_fd;
    int m_error = 0;
};

}  // namespace gdnctl::codex
