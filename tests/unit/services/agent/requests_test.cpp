// How often an attempt asked the model, and the end of one that asks for ever.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "codex_world.h"
#include "services/agent/rollout.h"

namespace gdnctl::codex {

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
    test::CodexWorld world;
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
