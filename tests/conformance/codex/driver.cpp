// codex_driver SPEC.json: one attempt of an agent as the loop would make it, its outcome as one JSON object.
//
// SPEC: {"codex": PROGRAM or "command": [ARGV], "worktree", "prompt", "loop_id", "log" (folder), "environment": {…},
// "also": [names], "model", "effort", "profile", "search", "json", "ephemeral",
// "resume", "wall_ms", "idle_ms", "busy_ms", "tokens", "compactions", "requests", "check" (only the preflight), "sweep"
// (only that)}. SIGINT and SIGTERM stop the attempt.
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "core/json.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "platform/signals.h"
#include "services/agent/agent.h"
#include "services/agent/codex.h"

using namespace gdnctl;

namespace {

int report(const Json& json) {
    std::puts(to_text(json).c_str());
    return 0;
}

int report(const Error& error) {
    Json json;
    json["error"] = error.text();
    json["hint"] = error.hint;
    json["exit_code"] = static_cast<int>(exit_code_of(error.kind));
    return report(json);
}

Json survivors_of(const std::vector<ProcessResult::Survivor>& survivors) {
    Json list = Json::array();
    for (const auto& survivor : survivors) list.push_back(survivor.command);
    return list;
}

Json describe(const AgentOutcome& outcome) {
    Json json;
    json["class"] = std::string(word_of(outcome.kind));
    json["action"] = std::string(word_of(outcome.action));
    json["rc"] = outcome.exit_status;
    json["reason"] = outcome.reason;
    json["stop_reason"] = outcome.stop_reason;
    json["thread"] = outcome.thread_id;
    json["model"] = outcome.model;
    json["effort"] = outcome.effort;
    json["message"] = outcome.final_message;
    json["requests"] = outcome.requests;
    json["compactions"] = outcome.compactions;
    json["commands"] = outcome.commands;
    json["left_open"] = outcome.left_open;
    json["unknown_events"] = outcome.unknown_events;
    json["text_lines"] = outcome.text_lines;
    json["survivors"] = survivors_of(outcome.survivors);
    json["secs"] = static_cast<double>(outcome.elapsed.count()) / 1000;
    if (outcome.tokens) {
        json["tokens"] = {outcome.tokens->input, outcome.tokens->cached_input, outcome.tokens->output,
                          outcome.tokens->reasoning};
    }
    if (outcome.retry_after) json["retry_after_ms"] = outcome.retry_after->count();
    if (outcome.not_before) json["not_before"] = format_iso8601(*outcome.not_before);
    json["windows"] = outcome.rate_windows.size();
    json["summary"] = summary_of(outcome);
    return json;
}

class GivenEnv final : public Env {
public:
    explicit GivenEnv(std::map<std::string, std::string> values) : m_values(std::move(values)) {}
    std::optional<std::string> get(std::string_view name) const override {
        const auto found = m_values.find(std::string(name));
        return found == m_values.end() ? std::nullopt : std::optional(found->second);
    }
    std::map<std::string, std::string> all() const override { return m_values; }

private:
    std::map<std::string, std::string> m_values;
};

AgentRequest request_of(const Json& spec) {
    AgentRequest request;
    request.prompt = spec.value("prompt", std::string("do one thing"));
    request.worktree = spec.at("worktree").get<std::string>();
    request.resume_thread = spec.value("resume", std::string());
    request.loop_id = spec.at("loop_id").get<std::string>();
    const std::filesystem::path log = spec.at("log").get<std::string>();
    request.files = {log / "events.jsonl", log / "stderr.log", log / "rollout.jsonl", log / "message.txt"};
    request.limits.wall = std::chrono::milliseconds(spec.value("wall_ms", 120'000));
    request.limits.idle = std::chrono::milliseconds(spec.value("idle_ms", 60'000));
    request.limits.idle_while_busy = std::chrono::milliseconds(spec.value("busy_ms", 100'000));
    request.limits.tokens = spec.value("tokens", request.limits.tokens);
    request.limits.compactions = spec.value("compactions", request.limits.compactions);
    request.limits.requests = spec.value("requests", request.limits.requests);
    request.show = [](std::string_view line) { fmt::print(stderr, "{}\n", line); };
    request.stop = stop_on_signals();
    return request;
}

CodexSettings settings_of(const Json& spec, CodexProgram program) {
    CodexSettings settings;
    settings.program = std::move(program);
    settings.model = spec.value("model", std::string());
    settings.model_given = spec.value("model_given", true);
    settings.effort = spec.value("effort", std::string());
    settings.profile = spec.value("profile", std::string());
    settings.search = spec.value("search", false);
    settings.json = spec.value("json", true);
    settings.ephemeral = spec.value("ephemeral", false);
    return settings;
}

int attempt(const Json& spec) {
    AgentRequest request = request_of(spec);
    const GivenEnv env(spec.at("environment").get<std::map<std::string, std::string>>());
    const auto also = spec.value("also", std::vector<std::string>());
    auto environment = agent_environment(env, also, request.loop_id);
    if (!environment) return report(environment.error());
    request.environment = *environment;
    std::unique_ptr<Agent> agent;
    Json warnings = Json::array();
    if (spec.contains("command")) {
        agent =
            make_command_agent(spec.at("command").get<std::vector<std::string>>(), system_process(), system_clock());
    } else {
        CodexWanted wanted;
        wanted.program = spec.at("codex").get<std::string>();
        wanted.environment = request.environment;
        auto program = find_codex(wanted, system_process());
        if (!program) return report(program.error());
        CodexSettings settings = settings_of(spec, std::move(*program));
        if (spec.value("preflight", true)) {
            auto checked = check_codex(std::move(settings), request.worktree, request.environment, system_process());
            if (!checked) return report(checked.error());
            for (const auto& warning : checked->warnings) warnings.push_back(warning);
            settings = std::move(checked->settings);
        }
        if (spec.value("check", false)) {
            Json json;
            json["program"] = settings.program.path.string();
            json["version"] = settings.program.version;
            json["models"] = settings.program.models.size();
            json["model"] = settings.model;
            json["efforts"] = codex_efforts(settings.program);
            json["features"] = settings.program.features.size();
            json["search_flag"] = settings.program.search_flag;
            json["warnings"] = warnings;
            return report(json);
        }
        agent = make_codex_agent(std::move(settings), system_process(), system_clock());
    }
    const auto outcome = agent->run(request);
    if (!outcome) return report(outcome.error());
    Json json = describe(*outcome);
    json["warnings"] = warnings;
    return report(json);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    const auto text = read_file(argv[1]);
    if (!text) return report(text.error());
    const auto spec = parse_json(*text, argv[1]);
    if (!spec) return report(spec.error());
    try {
        if (spec->value("sweep", false)) {
            Json json;
            json["swept"] = survivors_of(sweep_loop(spec->at("loop_id").get<std::string>(), system_clock()));
            return report(json);
        }
        return attempt(*spec);
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "codex_driver: %s\n", problem.what());
        return 70;
    }
}
