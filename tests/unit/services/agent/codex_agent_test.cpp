// Attempts of a codex that plays a scenario, with real processes.
#include <algorithm>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "services/agent/rollout.h"
#include "support/fake_clock.h"
#include "support/fake_process.h"
#include "unit/services/agent/codex_fixture.h"

using namespace gdnctl;
using namespace gdnctl::test;
using namespace std::chrono_literals;
using Kind = AgentEvent::Kind;

TEST_CASE("codex agent: golden run that commits") {
    CodexFixture world;
    world.play(
        "git init -q\n"
        "thread\n"
        R"(event {"type":"item.completed","item":{"id":"item_0","type":"reasoning","text":"**Planning**"}})"
        "\n"
        R"(event {"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'ls'","aggregated_output":"","exit_code":null,"status":"in_progress"}})"
        "\n"
        R"(event {"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'ls'","aggregated_output":"README.md\n","exit_code":0,"status":"completed"}})"
        "\n"
        "write hello.txt hello\n"
        R"(event {"type":"item.started","item":{"id":"item_2","type":"file_change","changes":[{"path":"/abs/hello.txt","kind":"add"}],"status":"in_progress"}})"
        "\n"
        R"(event {"type":"item.completed","item":{"id":"item_2","type":"file_change","changes":[{"path":"/abs/hello.txt","kind":"add"}],"status":"completed"}})"
        "\n"
        "commit one optimization\n"
        R"(rollout {"type":"turn_context","payload":{"model":"model-a","effort":"xhigh"}})"
        "\n"
        "usage 2000 1500 70 20\nusage 4000 3500 100 30\n"
        "message Committed one optimization.\n"
        "completed 6000 5000 170 50");
    const auto outcome = world.run();
    CHECK(outcome.kind == AgentClass::ok);
    CHECK(outcome.action == AgentAction::proceed);
    CHECK(outcome.exit_status == 0);
    CHECK(outcome.reason.empty());
    CHECK(outcome.tokens == AgentTokens{6000, 5000, 170, 50});
    CHECK(outcome.requests == 2);
    CHECK(outcome.commands == 1);
    CHECK(outcome.left_open == 0);
    CHECK(outcome.model == "model-a");
    CHECK(outcome.effort == "xhigh");
    CHECK(outcome.final_message == "Committed one optimization.");
    CHECK(read_whole(outcome.files.last_message) == "Committed one optimization.");
    CHECK(world.shown == std::vector<std::string>{"**Planning**", "$ ls", "Committed one optimization."});
    REQUIRE(world.events.size() == 5);
    CHECK(world.events[3].kind == Kind::files_changed);
    CHECK(world.events[3].files.front() == "/abs/hello.txt");
    CHECK(summary_of(outcome).starts_with("class=ok rc=0 thread=" + outcome.thread_id + " tokens=6000/5000/170 secs="));

    const auto calls = world.calls();
    REQUIRE(calls.size() == 1);
    CHECK(calls[0]["stdin"] == "do one thing\n");
    const std::string tree = (world.scratch / "tree").string();
    const std::string message = (world.scratch / "log/message.txt").string();
    CHECK(calls[0]["argv"] == Json({"exec", "-C", tree, "--dangerously-bypass-approvals-and-sandbox", "--json", "-o",
                                    message, "-m", "model-a", "-c", "model_reasoning_effort=\"xhigh\"", "-c",
                                    "web_search=\"disabled\"", "--disable", "unbounded_connection_retries", "-"}));
    CHECK(calls[0]["env"]["GDNCTL_LOOP_ID"] == world.request.loop_id);
    // Every line of the events file is an object with our time; the copy of the rollout is whole.
    std::ifstream events(outcome.files.events);
    int lines = 0;
    for (std::string line; std::getline(events, line); ++lines) CHECK(Json::parse(line).contains("t"));
    CHECK(lines == 9);
    CHECK(read_whole(outcome.files.rollout).find("token_usage_record") != std::string::npos);
    CHECK(std::filesystem::exists(world.scratch / "tree/hello.txt"));
}

TEST_CASE("codex agent: lost connections that come back are no failure") {
    CodexFixture world;
    const auto outcome = world.run(
        "thread\nevent {\"type\":\"error\",\"message\":\"Reconnecting... 1/1 (stream disconnected)\"}\n"
        "message done\ncompleted 1 0 1 0");
    CHECK(outcome.ok());
    CHECK(outcome.final_message == "done");
}

TEST_CASE("codex agent: success and failure that contradict each other are failures, with three reasons") {
    CodexFixture world;
    const auto failed = world.run("thread\nfailed some odd thing happened");
    CHECK(failed.kind == AgentClass::failed);
    CHECK(failed.exit_status != 0);
    CHECK(failed.reason == "some odd thing happened");
    const auto after = world.run("thread\nmessage done\ncompleted 1 0 1 0\nexit 1");
    CHECK(after.kind == AgentClass::protocol);
    CHECK(after.reason == "completed its turn, then exited with code 1");
    const auto silent = world.run("thread\nmessage done");
    CHECK(silent.kind == AgentClass::protocol);
    CHECK(silent.exit_status == 1);
    CHECK(silent.reason == "ended well without having completed its turn");
}

TEST_CASE("codex agent: a stale message file of an earlier attempt is never used") {
    CodexFixture world;
    (void)world.scratch.file("log/message.txt", "what I did last time");
    const auto outcome = world.run("thread\nfailed broken");
    CHECK_FALSE(outcome.ok());
    CHECK(outcome.final_message.empty());
    CHECK_FALSE(std::filesystem::exists(outcome.files.last_message));
}

TEST_CASE("codex agent: work of a failed turn stays where it is, commit or dirty tree") {
    CodexFixture world;
    const auto committed = world.run(
        "git init -q\nwrite a.txt a\nthread\ncommit work\nfailed We\xe2\x80\x99re currently experiencing high demand, "
        "which may cause temporary errors.");
    CHECK(committed.kind == AgentClass::server_error);
    CHECK(std::filesystem::exists(world.scratch / "tree/.git/refs/heads"));
    const auto dirty = world.run("write b.txt b\nthread\nfailed broken");
    CHECK_FALSE(dirty.ok());
    CHECK(read_whole(world.scratch / "tree/b.txt") == "b\n");
}

TEST_CASE("codex agent: silence after the turn's start is a hang, 124") {
    CodexFixture world;
    world.request.limits.idle = 300ms;
    const auto outcome = world.run("thread\nsleep 600");
    CHECK(outcome.kind == AgentClass::hang);
    CHECK(outcome.action == AgentAction::retry);
    CHECK(outcome.exit_status == 124);
    CHECK(outcome.reason == "no event and no token for 300 ms");
    CHECK(world.nothing_left());
}

TEST_CASE("codex agent: wall limit, 124") {
    CodexFixture world;
    world.request.limits.wall = 300ms;
    const auto outcome = world.run("thread\nsleep 600");
    CHECK(outcome.kind == AgentClass::wall_limit);
    CHECK(outcome.exit_status == 124);
    CHECK(outcome.reason == "ran longer than 300 ms");
}

TEST_CASE("codex agent: tokens over the limit end it, by the rollout while it runs") {
    CodexFixture world;
    world.request.limits.tokens = 10'000;
    const auto outcome = world.run("thread\nusage 5000 0 100 0\nusage 9000 0 100 0\nsleep 600");
    CHECK(outcome.kind == AgentClass::token_limit);
    CHECK(outcome.exit_status == 124);
    CHECK(outcome.reason == "used 14200 of 10000 tokens");
    CHECK(outcome.tokens == AgentTokens{14000, 0, 200, 0});
}

TEST_CASE("codex agent: context compactions over the limit end it") {
    CodexFixture world;
    std::string scenario = "thread\n";
    for (int i = 0; i < 11; ++i) scenario += "rollout {\"type\":\"compacted\",\"payload\":{\"message\":\"m\"}}\n";
    const auto outcome = world.run(scenario + "sleep 600");
    CHECK(outcome.kind == AgentClass::compaction_limit);
    CHECK(outcome.compactions == 11);
}

TEST_CASE("codex agent: a stop request ends it and its commands") {
    CodexFixture world;
    std::stop_source stop;
    world.request.stop = stop.get_token();
    world.request.on_event = [&](const AgentEvent&) { stop.request_stop(); };
    const auto outcome = world.run("thread\ncommand sleep 600\nmessage here\nsleep 600");
    CHECK(outcome.kind == AgentClass::stopped);
    CHECK(outcome.exit_status == 130);
    CHECK(world.nothing_left());
}

TEST_CASE("codex agent: ignoring SIGINT, and SIGTERM too, does not save it") {
    for (const std::string ignored : {"ignore SIGINT\n", "ignore SIGINT\nignore SIGTERM\n"}) {
        CodexFixture world;
        std::stop_source stop;
        world.request.stop = stop.get_token();
        world.request.on_event = [&](const AgentEvent&) { stop.request_stop(); };
        const auto outcome = world.run("thread\n" + ignored + "message here\nsleep 600");
        CHECK(outcome.kind == AgentClass::stopped);
        CHECK(outcome.elapsed < 300s);
        CHECK(world.nothing_left());
    }
}

TEST_CASE("codex agent: survivors of every kind are gone and listed") {
    for (const std::string kind : {"session", "double", "bare", "holds"}) {
        CAPTURE(kind);
        CodexFixture world;
        const auto outcome = world.run("thread\nsurvivor " + kind + "\nmessage done\ncompleted 1 0 1 0");
        CHECK(outcome.ok());
        REQUIRE(outcome.survivors.size() == 1);
        CHECK(outcome.survivors[0].command == "sleep 600");
        CHECK(is_gone(outcome.survivors[0].id.pid));
    }
}

TEST_CASE("codex agent: what a successful turn leaves may be kept, what a failed one leaves may not") {
    CodexFixture world;
    world.request.keep_background = true;
    const auto kept = world.run("thread\nsurvivor session\nmessage done\ncompleted 1 0 1 0");
    CHECK(kept.ok());
    REQUIRE(kept.survivors.size() == 1);
    CHECK_FALSE(is_gone(kept.survivors[0].id.pid));
    const auto failed = world.run("thread\nsurvivor session\nfailed broken");
    REQUIRE(failed.survivors.size() == 1);
    CHECK(is_gone(failed.survivors[0].id.pid));

    // What a killed run leaves is found by the marker.
    const auto swept = sweep_loop(world.request.loop_id, system_clock());
    REQUIRE(swept.size() == 1);
    CHECK(swept[0].id == kept.survivors[0].id);
    CHECK(is_gone(kept.survivors[0].id.pid));
    CHECK(sweep_loop(world.request.loop_id, system_clock()).empty());
    CHECK(sweep_loop("", system_clock()).empty());
}

TEST_CASE("codex agent: a prompt of 1 MiB against a program that writes first") {
    CodexFixture world;
    world.request.prompt = std::string(std::size_t{1} << 20, 'p');
    const auto outcome = world.run("late-stdin\n1048576\nthread\nmessage done\ncompleted 1 0 1 0");
    CHECK(outcome.ok());
    CHECK(world.calls().at(0)["stdin_bytes"] == 1 << 20);
    CHECK(outcome.text_lines > 10'000);
}

TEST_CASE("codex agent: unknown, broken and huge lines are kept and hurt nobody") {
    CodexFixture world;
    const auto outcome = world.run(
        "thread\n"
        "event {\"type\":\"plan.delta\",\"item_id\":\"x\"}\n"
        "event {\"type\":\"item.completed\",\"item\":{\"id\":\"i\",\"type\":\"todo_list\",\"items\":[]}}\n"
        "event this is no JSON\n"
        "raw {\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"bad \\xff byte\"}}\\n\n"
        "long 5000000\n"
        "event {\"type\":\"item.comp\n"
        "message done\n"
        "raw {\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":7}}\\r\\n\n"
        "raw {\"type\":\"late\"}");
    CHECK(outcome.ok());
    CHECK(outcome.final_message == "done");
    CHECK(outcome.unknown_events == 3);
    CHECK(outcome.text_lines == 2);
    CHECK(outcome.tokens == AgentTokens{7, 0, 0, 0});
    const auto events = read_whole(outcome.files.events);
    CHECK(events.find("plan.delta") != std::string::npos);
    CHECK(events.find("this is no JSON") != std::string::npos);
    CHECK(events.find("bad \xff byte") != std::string::npos);
    CHECK(events.size() > 5'000'000);
}

TEST_CASE("codex agent: parallel commands, and one that never ends") {
    CodexFixture world;
    const auto item = [](const char* type, int id, const char* rest) {
        return fmt::format(
            R"(event {{"type":"item.{}","item":{{"id":"item_{}","type":"command_execution","command":"c{}"{}}}}})"
            "\n",
            type, id, id, rest);
    };
    const auto outcome =
        world.run("thread\n" + item("started", 0, "") + item("started", 1, "") + item("started", 2, "") +
                  item("completed", 1, R"(,"exit_code":7,"aggregated_output":"no\nway")") +
                  item("completed", 0, R"(,"exit_code":0)") + "message done\ncompleted 1 0 1 0");
    CHECK(outcome.ok());
    CHECK(outcome.commands == 2);
    CHECK(outcome.left_open == 1);
    CHECK(world.shown[2] == "$ c2");
    CHECK(world.shown[3].starts_with("  exited 7 after "));
    CHECK(world.shown[4] == "  | no");
}

TEST_CASE("codex agent: resume goes on with the thread, and refuses another one") {
    CodexFixture world;
    const auto first = world.run("thread\nusage 1000 0 10 0\nsleep 0.1\nfailed broken");
    REQUIRE_FALSE(first.thread_id.empty());
    world.request.resume_thread = first.thread_id;
    world.settings.profile = "";
    // Usage of a resumed turn is the thread's; the attempt's own is what the rollout got since.
    const auto second = world.run("thread\nusage 1200 0 20 0\nmessage done\ncompleted 2200 0 30 0");
    CHECK(second.ok());
    CHECK(second.thread_id == first.thread_id);
    CHECK(second.tokens == AgentTokens{1200, 0, 20, 0});
    const auto argv = world.calls().back()["argv"];
    CHECK(argv[3] == "resume");
    CHECK(argv[4] == first.thread_id);
    CHECK(argv[5] == "--dangerously-bypass-approvals-and-sandbox");

    world.settings.ephemeral = true;
    world.request.resumed_tokens = {2200, 0, 30, 0};
    const auto third = world.run("thread\nmessage done\ncompleted 3400 0 50 0");
    CHECK(third.tokens == AgentTokens{1200, 0, 20, 0});

    const auto other = world.run("thread 0199-other\nmessage done\ncompleted 1 0 1 0");
    CHECK(other.kind == AgentClass::thread_missing);
    CHECK(other.action == AgentAction::fresh_thread);
    CHECK(other.reason == "another thread was resumed: 0199-other");
}

TEST_CASE("codex agent: panic, death by signal, refused words, failed start") {
    CodexFixture world;
    const auto panic = world.run("thread\npanic");
    CHECK(panic.kind == AgentClass::crashed);
    CHECK(panic.exit_status == 101);
    const auto killed = world.run("thread\nsignal 9");
    CHECK(killed.kind == AgentClass::crashed);
    CHECK(killed.exit_status == 137);
    CHECK(killed.reason == "was killed by signal 9 (Killed)");
    const auto start = world.run("err WARNING: proceeding anyway\nerr Error: Model provider `nope` not found\nexit 1");
    CHECK(start.kind == AgentClass::configuration);
    CHECK(start.stop_reason == "codex-config");
    CHECK(start.reason == "Error: Model provider `nope` not found");
    const auto missing =
        world.run("err Error: thread/resume failed: no rollout found for thread id x (code -32600)\nexit 1");
    CHECK(missing.kind == AgentClass::thread_missing);
    world.settings.program.search_flag = true;
    world.settings.search = true;
    const auto words = world.run("thread");
    CHECK(words.exit_status == 2);
    CHECK(words.reason == "error: unexpected argument '--search' found");
}

TEST_CASE("codex agent: search is live or disabled") {
    CodexFixture world;
    for (const bool search : {false, true}) {
        world.settings.search = search;
        (void)world.run("thread\nmessage done\ncompleted 1 0 1 0");
        const auto words = to_text(world.calls().back()["argv"]);
        CHECK(words.find(search ? "web_search=\\\"live\\\"" : "web_search=\\\"disabled\\\"") != std::string::npos);
    }
}

TEST_CASE("codex agent: human output, filtered for people, whole in the transcript") {
    CodexFixture world;
    world.settings.json = false;
    const std::string human =
        "err --------\nerr model: model-a\nerr session id: 0199-human\nerr --------\n"
        "err file update: src/a.c\nerr @@ -1,1 +1,1 @@\nerr -old\nerr +new\nerr - I will run the tests\n";
    const auto outcome = world.run(human + "err tokens used\nerr 1,170\nevent all done");
    CHECK(outcome.ok());
    CHECK(outcome.thread_id == "0199-human");
    CHECK(outcome.model == "model-a");
    CHECK(outcome.tokens == AgentTokens{1170, 0, 0, 0});
    CHECK(std::find(world.shown.begin(), world.shown.end(), "+new") == world.shown.end());
    CHECK(std::find(world.shown.begin(), world.shown.end(), "- I will run the tests") != world.shown.end());
    CHECK(read_whole(outcome.files.events).find("+new") != std::string::npos);
    const auto failed = world.run(human + "err ERROR: Quota exceeded. Check your plan and billing details.\nexit 1");
    CHECK(failed.kind == AgentClass::quota);
    CHECK(failed.stop_reason == "codex-quota");
}

TEST_CASE("codex agent: secrets do not reach the files that it leaves") {
    CodexFixture world;
    const std::string token = "hf_" + std::string(34, 'a');
    const auto outcome =
        world.run("thread\nerr " + token + "\nmessage " + token + "\nrollout {\"type\":\"x\",\"payload\":\"" + token +
                  "\"}\nusage 1 0 1 0\ncompleted 1 0 1 0");
    CHECK(outcome.ok());
    for (const auto& file : {outcome.files.events, outcome.files.stderr_log, outcome.files.rollout}) {
        CAPTURE(file);
        const auto content = read_whole(file);
        CHECK_FALSE(content.empty());
        CHECK(content.find(token) == std::string::npos);
    }
}

TEST_CASE("codex agent: a request that lacks something, a transcript that cannot be written") {
    CodexFixture world;
    world.request.files.events = world.scratch / "nowhere/events.jsonl";
    auto failed = world.try_run();
    REQUIRE_FALSE(failed);
    CHECK(failed.error().kind == ErrorKind::local_io);
    world.request.files.events = "/dev/full";
    world.play("thread\nmessage a\nsleep 600");
    failed = world.try_run();
    REQUIRE_FALSE(failed);
    CHECK(failed.error().kind == ErrorKind::local_io);
    CHECK(world.nothing_left());
    world.request.files.events.clear();
    world.request.prompt.clear();
    failed = world.try_run();
    REQUIRE_FALSE(failed);
    CHECK(failed.error().kind == ErrorKind::usage);
    world.request.prompt = "p";
    world.request.worktree = world.scratch / "nowhere";
    CHECK_FALSE(world.try_run());
    world.request.worktree = world.scratch / "tree";
    world.request.loop_id.clear();
    CHECK_FALSE(world.try_run());
}

TEST_CASE("codex agent: says once which model works where it was told another or none") {
    CodexFixture world;
    world.settings.model.clear();
    (void)world.run(
        "thread\nrollout {\"type\":\"turn_context\",\"payload\":{\"model\":\"model-b\",\"effort\":\"low\"}}\n"
        "usage 10 0 1 0\nmessage done\ncompleted 10 0 1 0");
    const std::string line = "codex is using model model-b with reasoning effort low";
    CHECK(std::count(world.shown.begin(), world.shown.end(), line) == 1);
}

// What counts as a sign of life: a scripted process, a clock that is told the time.
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
AgentOutcome attempt(CodexFixture& world, FakeClock& clock, const std::function<void(const ProcessSpec&)>& also) {
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

TEST_CASE("codex idle: events are signs of life, lost connections and stray lines are not") {
    CodexFixture world;
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
    CodexFixture world;
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
    CodexFixture world;
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
    CodexFixture world;
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
    CodexFixture world;
    FakeClock clock;
    world.request.limits = {0ms, 0ms, 0ms, 0, -1, 0, 5s, 2s};
    attempt(world, clock, [&](const ProcessSpec& spec) {
        spec.on_stdout_line(k_thread);
        clock.advance(1000h);
        CHECK(spec.watch());
        CHECK(spec.wall_limit == 0ms);
    });
}

namespace gdnctl::codex {

// How often an attempt asked the model, and the end of one that asks for ever.

namespace {

std::string item(const std::string& kind, const std::string& more = {}) {
    return fmt::format(R"({{"timestamp":"t","type":"response_item","payload":{{"type":"{}"{}}}}})", kind, more) + "\n";
}

RolloutFacts facts_of(const std::string& text) {
    RolloutReader reader;
    reader.feed(text);
    return reader.facts();
}

}  // namespace

TEST_CASE("codex requests: counted by what the model asked for where nothing is said of usage") {
    const std::string call = item("function_call", R"(,"name":"shell","arguments":"{}")");
    const std::string output = item("function_call_output");
    const std::string two_calls = item("reasoning") + call + item("custom_tool_call") + output + output;
    const std::string prompt = item("message", R"(,"role":"user","content":"\"payload\":{\"type\":\"function_call\"")");
    const RolloutFacts unsaid = facts_of(prompt + two_calls + call + output + item("reasoning"));
    CHECK(unsaid.requests == 3);
    CHECK(unsaid.usages == 0);
    // A record is one whatever it says, and nothing is counted twice.
    const std::string silent = R"({"timestamp":"t","type":"token_usage_record","payload":{"usage":null}})"
                               "\n";
    const std::string said =
        R"({"timestamp":"t","type":"token_usage_record","payload":{"usage":{"input_tokens":5,"output_tokens":2}}})"
        "\n";
    const RolloutFacts both = facts_of(call + silent + output + call + said + output + item("message") + said);
    CHECK(both.requests == 3);
    CHECK(both.usages == 2);
    CHECK(both.tokens == AgentTokens{10, 0, 4, 0});
    // A line of any length.
    CHECK(facts_of(item("reasoning", ",\"x\":\"" + std::string(RolloutReader::k_longest_line, 'x') + '"')).requests ==
          1);
}

TEST_CASE("codex requests: more than the limit end the attempt, with and without a word of usage") {
    test::CodexFixture world;
    world.request.limits.requests = 20;
    const auto unsaid = world.run("thread\nanswers 21\nsleep 600");
    CHECK(unsaid.kind == AgentClass::request_limit);
    CHECK(unsaid.action == AgentAction::count);
    CHECK(unsaid.exit_status == 124);
    CHECK(unsaid.reason == "asked the model 21 times");
    CHECK_FALSE(unsaid.tokens);
    CHECK(word_of(unsaid.kind) == "request-limit");
    std::string scenario = "thread\n";
    for (int i = 0; i < 21; ++i) scenario += "usage 10 0 1 0\n";
    CHECK(world.run(scenario + "sleep 600").kind == AgentClass::request_limit);
    CHECK(world.nothing_left());
    CHECK(world.run("thread\nanswers 20\nmessage done\ncompleted 1 0 1 0").ok());
    world.request.limits.requests = 0;
    CHECK(world.run("thread\nanswers 2001\nmessage done\ncompleted 1 0 1 0").ok());
}

}  // namespace gdnctl::codex
