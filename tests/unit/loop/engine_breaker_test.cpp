// When an engine gives up: trouble that the next iteration would meet again.
#include <doctest/doctest.h>

#include "engine_world.h"

namespace gdnctl::loop {

namespace {

AgentOutcome says(AgentClass kind, AgentAction action, const std::string& reason) {
    AgentOutcome outcome = ended(kind, action, 1);
    outcome.reason = reason;
    outcome.explained = true;
    return outcome;
}

TEST_CASE("engine: a prompt that the model refuses in two iterations running ends the run") {
    EngineWorld world;
    world.settings.options.iterations = 6;
    world.settings.options.max_failures = -1;
    const auto refused = [](const AgentRequest&) { return ended(AgentClass::invalid_prompt, AgentAction::count, 1); };
    ScriptedAgent agent({refused, world.commits("int speed = 2;\n"), refused, refused});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "agent-error");
    CHECK(end.iteration == 4);
    CHECK(end.rc == 1);
}

TEST_CASE("engine: three iterations that fail with the same words of the agent end the run") {
    EngineWorld world;
    world.settings.options.iterations = 9;
    world.settings.options.max_failures = -1;
    const auto boom = [](const AgentRequest&) { return says(AgentClass::failed, AgentAction::retry, "boom"); };
    const auto bang = [](const AgentRequest&) { return says(AgentClass::failed, AgentAction::retry, "bang"); };
    ScriptedAgent agent({boom, boom, bang, world.commits("int speed = 2;\n"), boom, boom, boom});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "circuit-breaker");
    CHECK(end.iteration == 7);
    CHECK(end.rc == 4);
    // Whoever resumes has looked at it.
    ScriptedAgent mended({world.commits("int speed = 3;\n"), world.commits("int speed = 4;\n")});
    CHECK(world.run(mended, true).reason == "completed");
}

TEST_CASE("engine: a provider that is down for a night ends no resilient run") {
    EngineWorld world;
    world.settings.options.iterations = 4;
    world.settings.options.resilient = true;
    world.settings.options.max_failures = -1;
    world.settings.options.codex_retries = 1;
    const auto down = [](const AgentRequest&) {
        return says(AgentClass::server_error, AgentAction::retry, "high demand");
    };
    std::vector<ScriptedAgent::Play> plays(2 + 2 + 2 + 20, down);
    plays.push_back(world.commits("int speed = 2;\n"));
    plays.push_back(world.commits("int speed = 3;\n"));
    ScriptedAgent agent(plays);
    CHECK(world.run(agent).reason == "completed");
    CHECK(world.state.outcomes.at("agent-error") == 2);
    CHECK(world.state.outcomes.at("accepted") == 2);
    std::chrono::milliseconds sum{0};
    for (const auto slept : world.clock.sleeps()) sum += slept;
    CHECK(sum > std::chrono::hours(3));
    CHECK(sum < std::chrono::hours(6));
}

TEST_CASE("engine: a provider that fails is started at most three times a minute, whatever its limit says") {
    const std::vector<std::pair<AgentClass, AgentAction>> kinds = {{AgentClass::usage_limit, AgentAction::wait_until},
                                                                   {AgentClass::unreachable, AgentAction::back_off},
                                                                   {AgentClass::server_error, AgentAction::retry}};
    for (const auto& each : kinds) {
        for (const int longest_wait_s : {0, 21'600}) {
            EngineWorld world;
            world.settings.options.iterations = 12;
            world.settings.options.max_failures = -1;
            world.settings.options.codex_retries = 1;
            world.settings.options.retry_sleep_seconds = 0;
            world.settings.options.sleep_seconds = 0;
            world.settings.longest_wait_s = longest_wait_s;
            std::vector<Clock::Monotonic> starts;
            ScriptedAgent agent({[&](const AgentRequest&) {
                starts.push_back(world.clock.monotonic());
                if (starts.size() > 20) return good();
                AgentOutcome outcome = ended(each.first, each.second, 1);
                outcome.reason = std::string(1, static_cast<char>('a' + starts.size()));  // never the same
                outcome.not_before = world.clock.wall() - std::chrono::minutes(20);       // has passed
                return outcome;
            }});
            world.run(agent);
            CHECK(starts.size() >= 12);
            for (std::size_t i = 3; i < starts.size() && i < 20; ++i) {
                CHECK(starts[i] - starts[i - 3] >= std::chrono::minutes(1));
            }
        }
    }
    // Any other failure is retried as often as was asked for.
    EngineWorld world;
    world.settings.options.iterations = 4;
    world.settings.options.max_failures = -1;
    world.settings.options.codex_retries = 2;
    world.settings.options.retry_sleep_seconds = 1;
    world.settings.options.sleep_seconds = 0;
    ScriptedAgent agent({[](const AgentRequest&) { return ended(AgentClass::failed, AgentAction::retry, 1); }});
    const auto begun = world.clock.monotonic();
    world.run(agent);
    CHECK(agent.calls == 12);
    CHECK(world.clock.monotonic() - begun < std::chrono::minutes(1));
}

TEST_CASE("engine: a resilient run waits no longer than --codex-max-wait for a provider that is down") {
    EngineWorld world;
    world.settings.options.iterations = 9;
    world.settings.options.resilient = true;
    world.settings.options.max_failures = -1;
    world.settings.longest_wait_s = 600;
    ScriptedAgent agent({[](const AgentRequest&) {
        return says(AgentClass::stream_cut, AgentAction::retry, "stream disconnected before completion");
    }});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "circuit-breaker");
    CHECK(end.iteration == 3);
}

TEST_CASE(
    "engine: three times the same trouble of the surroundings opens the circuit breaker, nothing is counted (failure "
    "mode H)") {
    EngineWorld world;
    world.settings.options.iterations = 9;
    world.stages.push_back(std::make_unique<ScriptedStage>("tests", Policy::count_failure, [](const StageContext&) {
        StageResult result;
        result.verdict = StageVerdict::fail;
        result.outcome = Outcome::infra;
        result.sign = "ConnectionResetError";
        return result;
    }));
    int speed = 1;
    ScriptedAgent agent({[&](const AgentRequest& request) {
        return world.commits("int speed = " + std::to_string(++speed) + ";\n")(request);
    }});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "circuit-breaker");
    CHECK(end.iteration == 3);
    CHECK(end.rc == 4);
    CHECK(world.state.failures == 0);
    CHECK(world.head() == world.base);
    CHECK_FALSE(world.ref("iter-003/head").empty());
}

TEST_CASE("engine: a TPU that was held for as long as --max-tpu-minutes ends the run") {
    EngineWorld world;
    world.settings.options.iterations = 9;
    world.settings.budget.tpu_minutes = 3;
    std::int64_t held = 0;
    world.held_ms = [&] { return held; };
    int speed = 1;
    ScriptedAgent agent({[&](const AgentRequest& request) {
        held += 80'000;
        return world.commits("int speed = " + std::to_string(++speed) + ";\n")(request);
    }});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "max-tpu-minutes");
    CHECK(end.iteration == 3);
    CHECK(end.rc == 0);
    CHECK(world.state.tpu_ms == 240'000);
}

TEST_CASE("engine: where a window of the provider is used up, the next attempt waits for its reset") {
    EngineWorld world;
    world.settings.options.iterations = 2;
    const auto reset = world.clock.wall() + std::chrono::hours(1);
    int speed = 1;
    ScriptedAgent agent({[&](const AgentRequest& request) {
        AgentOutcome outcome = world.commits("int speed = " + std::to_string(++speed) + ";\n")(request);
        if (speed == 2) outcome.rate_windows = {{94.9, reset + std::chrono::hours(9)}, {95, reset}};
        if (speed == 3) CHECK(world.clock.wall() >= reset);
        return outcome;
    }});
    CHECK(world.run(agent).reason == "completed");
    CHECK(speed == 3);
    CHECK(world.clock.wall() < reset + std::chrono::hours(1));
}

}  // namespace

}  // namespace gdnctl::loop
