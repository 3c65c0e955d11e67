// What counts as a sign of life: a scripted process, a clock that is told the time.
#include <doctest/doctest.h>

#include "support/fake_clock.h"
#include "support/fake_process.h"
#include "unit/services/agent/codex_world.h"

using namespace gdnctl;
using namespace gdnctl::test;
using namespace std::chrono_literals;

namespace {

const std::string k_thread = R"({"type":"thread.started","thread_id":"0199-t"})";
const std::string k_open =
    R"({"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"wait","status":"in_progress"}})";
const std::string k_closed =
    R"({"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"wait","exit_code":0}})";

// One attempt in which `also` plays the program.
AgentOutcome attempt(CodexWorld& world, FakeClock& clock, const std::function<void(const ProcessSpec&)>& also) {
    FakeProcess process;
    ProcessResult result;
    result.end = ProcessResult::End::watch;
    result.exit_code = 1;
    process.expect(codex_argv(world.settings, world.request.worktree, world.request.files.last_message, ""), result,
                   also);
    const auto outcome = make_codex_agent(world.settings, process, clock)->run(world.request);
    REQUIRE(outcome);
    return *outcome;
}

}  // namespace

TEST_CASE("codex: a final message that breaks the schema is no success") {
    CodexWorld world;
    world.settings.output_schema =
        world.scratch.file("schema.json", R"({"type":"object","required":["outcome"],"properties":{"outcome":{}}})");
    const std::string turn = "thread\nmessage {}\ncompleted 1 0 1 0";
    CHECK(world.run(fmt::format(fmt::runtime(turn), R"({"outcome":"kept"})")).ok());
    const auto prose = world.run(fmt::format(fmt::runtime(turn), "I kept it."));
    CHECK(prose.kind == AgentClass::protocol);
    CHECK(prose.exit_status == 1);
    CHECK(prose.reason.find("final message") != std::string::npos);
}

TEST_CASE("codex idle: events are signs of life, lost connections and stray lines are not") {
    CodexWorld world;
    FakeClock clock;
    world.request.limits.idle = 10min;
    const auto outcome = attempt(world, clock, [&](const ProcessSpec& spec) {
        CHECK(spec.interrupt_grace > 0ms);
        CHECK(spec.new_session);
        CHECK(spec.clean_env);
        clock.advance(9min);
        spec.on_stdout_line(k_thread);
        clock.advance(9min);
        CHECK(spec.watch());
        spec.on_stdout_line(R"({"type":"something.new"})");
        clock.advance(9min);
        CHECK(spec.watch());
        spec.on_stdout_line(R"({"type":"error","message":"Reconnecting... waiting for network"})");
        spec.on_stdout_line("a stray line");
        spec.on_stderr_line("2026-11-22T00:00:00Z ERROR codex_core: still trying");
        clock.advance(2min);
        CHECK_FALSE(spec.watch());
    });
    CHECK(outcome.kind == AgentClass::hang);
    CHECK(outcome.reason == "no event and no token for 10 min 0 s");
}

TEST_CASE("codex idle: an open command may be silent for longer") {
    CodexWorld world;
    FakeClock clock;
    world.request.limits.idle = 10min;
    world.request.limits.idle_while_busy = 1h;
    const auto outcome = attempt(world, clock, [&](const ProcessSpec& spec) {
        spec.on_stdout_line(k_thread);
        spec.on_stdout_line(k_open);
        clock.advance(59min);
        CHECK(spec.watch());
        spec.on_stdout_line(k_closed);
        clock.advance(9min);
        CHECK(spec.watch());
        spec.on_stdout_line(k_open);
        clock.advance(61min);
        CHECK_FALSE(spec.watch());
    });
    CHECK(outcome.kind == AgentClass::hang);
    CHECK(outcome.left_open == 1);
    CHECK(outcome.reason.ends_with(", while a command was running"));
}

TEST_CASE("codex idle: so may one that shows only as a process with a session of its own") {
    CodexWorld world;
    world.request.limits.wall = 0ms;
    world.request.limits.idle = 1ms;  // over at every look
    world.request.limits.idle_while_busy = 0ms;
    std::stop_source stop;
    world.request.stop = stop.get_token();
    // The shell that leads has a child in its own session only: a hang.
    FakeClock clock;
    pid_t leader = 0;
    bool busy_went_on = false;
    ProcessSpec real;
    real.argv = {"/bin/sh", "-c", "setsid sleep 600 & echo $!; wait"};
    real.new_session = true;
    real.on_start = [&](pid_t pid) { leader = pid; };
    real.on_stdout_line = [&](std::string_view) {
        (void)attempt(world, clock, [&](const ProcessSpec& spec) {
            spec.on_start(leader);
            clock.advance(1h);
            for (int i = 0; i < 500 && !busy_went_on; ++i) {  // until setsid has happened
                busy_went_on = spec.watch();
                system_clock().sleep_for(10ms, {});
            }
        });
        stop.request_stop();
    };
    real.stop = stop.get_token();
    world.request.stop = {};
    REQUIRE(system_process().run(real));
    CHECK(busy_went_on);
}

TEST_CASE("codex idle: a rollout that grows without events is a sign of life") {
    CodexWorld world;
    FakeClock clock;
    world.request.limits.idle = 10min;
    const auto outcome = attempt(world, clock, [&](const ProcessSpec& spec) {
        spec.on_stdout_line(k_thread);
        const auto rollout = world.scratch.file("home/sessions/2026/11/22/rollout-x-0199-t.jsonl", "");
        for (int i = 0; i < 5; ++i) {
            clock.advance(9min);
            std::ofstream(rollout, std::ios::app)
                << R"({"timestamp":"t","type":"token_usage_record","payload":{"usage":{"input_tokens":5,"output_tokens":1}}})"
                << "\n";
            CHECK(spec.watch());
        }
        clock.advance(11min);
        CHECK_FALSE(spec.watch());
    });
    CHECK(outcome.kind == AgentClass::hang);
    CHECK(outcome.requests == 5);
    CHECK(outcome.tokens == AgentTokens{25, 0, 5, 0});
}

TEST_CASE("codex idle: no limits, no end") {
    CodexWorld world;
    FakeClock clock;
    world.request.limits = {0ms, 0ms, 0ms, 0, -1, 0, 5s, 2s};
    attempt(world, clock, [&](const ProcessSpec& spec) {
        spec.on_stdout_line(k_thread);
        clock.advance(1000h);
        CHECK(spec.watch());
        CHECK(spec.wall_limit == 0ms);
    });
}
