// A tree, a fake codex and what it was asked.
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include "core/json.h"
#include "core/text.h"
#include "platform/clock.h"
#include "platform/descendants.h"
#include "platform/process.h"
#include "services/agent/agent.h"
#include "services/agent/codex.h"
#include "support/scratch.h"

namespace gdnctl::test {

inline std::filesystem::path fake_codex() {
    return std::filesystem::path(GDNCTL_FIXTURES).parent_path() / "support/fake_codex.py";
}

inline bool is_gone(pid_t pid) {
    const auto info = process_info(pid);
    return !info || info->dead();
}

class CodexFixture {
public:
    CodexFixture() {
        for (const char* folder : {"tree", "home", "log", "play"})
            std::filesystem::create_directories(scratch / folder);
        settings.program.path = fake_codex();
        settings.program.features = {"unbounded_connection_retries"};
        settings.model = "model-a";
        settings.effort = "xhigh";
        request.prompt = "do one thing\n";
        request.worktree = scratch / "tree";
        request.loop_id = fmt::format("loop-{}-{}", getpid(), ++s_worlds);
        request.environment = {{"PATH", std::getenv("PATH")},
                               {"HOME", (scratch / "home").string()},
                               {"CODEX_HOME", (scratch / "home").string()},
                               {"PYTHONDONTWRITEBYTECODE", "1"},
                               {"GDNCTL_FAKE_CODEX", (scratch / "play").string()}};
        request.files = {scratch / "log/events.jsonl", scratch / "log/stderr.log", scratch / "log/rollout.jsonl",
                         scratch / "log/message.txt"};
        request.limits.interrupt_grace = std::chrono::milliseconds(300);
        request.limits.grace = std::chrono::milliseconds(300);
        request.show = [this](std::string_view line) { shown.emplace_back(line); };
        request.on_event = [this](const AgentEvent& event) { events.push_back(event); };
    }

    void play(std::string_view scenario) const { (void)scratch.file("play/scenario", scenario); }

    Result<AgentOutcome> try_run() {
        shown.clear();
        events.clear();
        return make_codex_agent(settings, system_process(), system_clock())->run(request);
    }
    AgentOutcome run() {
        auto outcome = try_run();
        REQUIRE_MESSAGE(outcome, (outcome ? "" : outcome.error().text()));
        return *outcome;
    }
    AgentOutcome run(std::string_view scenario) {
        play(scenario);
        return run();
    }

    std::vector<Json> calls() const {
        std::vector<Json> found;
        std::ifstream in(scratch / "play/calls.jsonl");
        for (std::string line; std::getline(in, line);) found.push_back(Json::parse(line));
        return found;
    }

    // No process carries the marker.
    bool nothing_left() const {
        return processes_with_entry(fmt::format("{}={}", k_loop_id_variable, request.loop_id), all_processes()).empty();
    }

    Scratch scratch;
    CodexSettings settings;
    AgentRequest request;
    std::vector<std::string> shown;
    std::vector<AgentEvent> events;

private:
    static inline int s_worlds = 0;
};

}  // namespace gdnctl::test
