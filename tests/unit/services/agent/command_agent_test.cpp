// Any program as an agent.
#include <doctest/doctest.h>

#include "unit/services/agent/codex_fixture.h"

using namespace gdnctl;
using namespace gdnctl::test;
using namespace std::chrono_literals;

namespace {

Result<AgentOutcome> run_script(const CodexFixture& world, const std::string& script) {
    return make_command_agent({"/bin/sh", "-c", script}, system_process(), system_clock())->run(world.request);
}

}  // namespace

TEST_CASE("command agent: prompt on standard input, work in the tree, last words as the message") {
    CodexFixture world;
    const auto outcome = run_script(world, "cat >prompt.txt; echo working; echo \"$GDNCTL_LOOP_ID\"; echo quiet >&2");
    REQUIRE(outcome);
    CHECK(outcome->ok());
    CHECK(outcome->exit_status == 0);
    CHECK(outcome->final_message == "working\n" + world.request.loop_id);
    CHECK_FALSE(outcome->tokens);
    CHECK(read_whole(world.scratch / "tree/prompt.txt") == world.request.prompt);
    CHECK(read_whole(world.scratch / "log/events.jsonl") == outcome->final_message + "\n");
    CHECK(read_whole(world.scratch / "log/stderr.log") == "quiet\n");
    CHECK(read_whole(world.scratch / "log/message.txt") == outcome->final_message + "\n");
    CHECK(world.shown.size() == 3);
}

TEST_CASE("command agent: a code of its own, a signal, a limit, a stop request, survivors") {
    CodexFixture world;
    auto outcome = run_script(world, "echo bad luck >&2; exit 7");
    REQUIRE(outcome);
    CHECK(outcome->kind == AgentClass::failed);
    CHECK(outcome->exit_status == 7);
    CHECK(outcome->reason == "exited with code 7: bad luck");
    CHECK_FALSE(std::filesystem::exists(world.scratch / "log/message.txt"));
    outcome = run_script(world, "echo 'openai.APIConnectionError: Connection error.' >&2; exit 3");
    REQUIRE(outcome);
    CHECK(outcome->kind == AgentClass::unreachable);
    CHECK(outcome->action == AgentAction::back_off);
    CHECK(outcome->exit_status == 3);
    CHECK(outcome->reason == "exited with code 3: openai.APIConnectionError: Connection error.");
    outcome = run_script(world, "kill -9 $$");
    REQUIRE(outcome);
    CHECK(outcome->kind == AgentClass::crashed);
    CHECK(outcome->exit_status == 137);
    outcome = run_script(world, "setsid sleep 600 >/dev/null 2>&1 & echo done");
    REQUIRE(outcome);
    CHECK(outcome->ok());
    CHECK(outcome->survivors.size() == 1);
    CHECK(world.nothing_left());
    world.request.limits.idle = 200ms;
    outcome = run_script(world, "exec sleep 600");
    REQUIRE(outcome);
    CHECK(outcome->kind == AgentClass::hang);
    CHECK(outcome->exit_status == 124);
    world.request.limits.idle = 0ms;
    world.request.limits.wall = 200ms;
    outcome = run_script(world, "exec sleep 600");
    REQUIRE(outcome);
    CHECK(outcome->kind == AgentClass::wall_limit);
    std::stop_source stop;
    world.request.stop = stop.get_token();
    world.request.limits.wall = 0ms;
    world.request.show = [&](std::string_view) { stop.request_stop(); };
    outcome = run_script(world, "echo here; exec sleep 600");
    REQUIRE(outcome);
    CHECK(outcome->kind == AgentClass::stopped);
}

TEST_CASE("command agent: no program, no conversations, nothing at that path") {
    CodexFixture world;
    CHECK_FALSE(make_command_agent({}, system_process(), system_clock())->run(world.request));
    const auto missing = make_command_agent({"/nowhere/agent"}, system_process(), system_clock())->run(world.request);
    REQUIRE_FALSE(missing);
    CHECK(missing.error().kind == ErrorKind::local_io);
    world.request.resume_thread = "x";
    const auto resumed = run_script(world, "true");
    REQUIRE_FALSE(resumed);
    CHECK(resumed.error().kind == ErrorKind::usage);
}

TEST_CASE("command agent: a flood of output keeps its last words only") {
    CodexFixture world;
    const auto outcome = run_script(world, "yes word | head -c 1000000; echo; echo last");
    REQUIRE(outcome);
    CHECK(outcome->final_message.size() <= 65536);
    CHECK(outcome->final_message.ends_with("\nlast"));
    CHECK(std::filesystem::file_size(world.scratch / "log/events.jsonl") > 1'000'000);
}
