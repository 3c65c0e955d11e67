// The agent of a run: its program, environment and limits. Anything unusable is refused before the run starts.
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
    std::filesystem::path codex_home;    // of this run; empty: none
    std::optional<CodexSettings> codex;  // how it is started
    std::vector<std::string> argv;       // for AgentKind::command
    std::vector<std::string> words(const AgentRequest& request) const;
};

// `home`: where the run's own codex home would be created. With `dry`, nothing is written. Errors: usage, config.
Result<LoopAgent> make_loop_agent(const LoopOptions& options, const std::string& loop_id,
                                  const std::filesystem::path& home, bool dry, Context& context);

}  // namespace gdnctl::loop
