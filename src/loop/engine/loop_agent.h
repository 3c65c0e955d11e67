// The agent of a run: which program, with what environment and limits, refused before anything has begun.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loop/engine/options.h"
#include "platform/context.h"
#include "services/agent/agent.h"
#include "services/agent/codex.h"

namespace gdnctl::loop {

struct LoopAgent {
    std::unique_ptr<Agent> agent;
    std::map<std::string, std::string> environment;
    AgentLimits limits;
    std::filesystem::path codex_home;    // the run's own; empty: none
    std::optional<CodexSettings> codex;  // what it is started with
    std::vector<std::string> argv;       // of AgentKind::command
    std::vector<std::string> words(const AgentRequest& request) const;
};

// `home`: where a codex home of the run's own would go. Nothing is written when `dry`. Errors: usage, config.
Result<LoopAgent> make_loop_agent(const LoopOptions& options, const std::string& loop_id,
                                  const std::filesystem::path& home, bool dry, Context& context);

}  // namespace gdnctl::loop
