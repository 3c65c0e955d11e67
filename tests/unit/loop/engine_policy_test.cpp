// What an engine makes of each outcome under each policy, and of a stop after each of its steps.
#include <algorithm>

#include "engine_world.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

TEST_CASE("engine: with gates no stage is spent where nothing was committed, or an empty commit (defect 7)") {
    EngineWorld world;
    world.settings.gates = true;
    world.settings.isolation = Isolation::inplace;
    world.settings.options.iterations = 2;
    world.settings.options.no_commit_policy = Policy::go_on;
    bool judged = false;
    world.stages.push_back(
        std::make_unique<ScriptedStage>("tests", Policy::fail, [&](const StageContext&) -> StageResult {
            judged = true;
            return {};
        }));
    ScriptedAgent agent({[](const AgentRequest&) { return good(); },
                         [&](const AgentRequest& request) {
                             world.sh("git commit -q --allow-empty -m nothing", request.worktree);
                             return good();
                         }});
    CHECK(world.run(agent).reason == "completed");
    CHECK_FALSE(judged);
    CHECK(world.state.outcomes == std::map<std::string, int>{{"no-op", 2}});
    CHECK(world.state.failures == 0);
    CHECK(world.head() == world.base);
}

// What a policy makes of each outcome: iterations 1 to 7, one outcome each.
TEST_CASE("engine: every policy with every outcome: what is counted, and what stays on the branch") {
    struct Row {
        Policy policy;
        int iterations;
        std::string counted;  // a digit an iteration
        std::string outcomes;
    };
    const std::string common = "no-op test-fail infra error ";
    for (const Row& row : {Row{Policy::count_failure, 7, "1101110", common + "agent-error rejected accepted "},
                           Row{Policy::go_on, 4, "0000", common}}) {
        CAPTURE(to_text(row.policy));
        EngineWorld world;
        LoopOptions& options = world.settings.options;
        world.settings.isolation = Isolation::inplace;
        options.iterations = row.iterations;
        options.max_failures = -1;
        options.no_commit_policy = options.iteration_error_policy = row.policy;
        world.settings.protected_policy = Policy::count_failure;
        const auto stage = [&](const StageContext& context) {
            StageResult result;
            const bool red = context.iteration == 2;
            result.verdict = red || context.iteration == 3 ? StageVerdict::fail : StageVerdict::pass;
            result.outcome = red ? Outcome::test_fail : Outcome::infra;
            result.exit_status = 6;
            return result;
        };
        world.stages.push_back(std::make_unique<ScriptedStage>("tests", row.policy, stage));
        const auto shell = [&](const char* command) -> ScriptedAgent::Play {
            return [&world, command](const AgentRequest& request) {
                world.sh(command, request.worktree);
                return good();
            };
        };
        ScriptedAgent agent({[](const AgentRequest&) { return good(); }, world.commits("int speed = 2;\n"),
                             world.commits("int speed = 3;\n"), shell("git commit -q --amend -m rewritten"),
                             [](const AgentRequest&) { return ended(AgentClass::failed, AgentAction::count, 9); },
                             shell("echo easier >tests/cases.txt && git commit -qam cheat"),
                             world.commits("int speed = 7;\n")});
        const RunEnd end = world.run(agent);
        CHECK(end.reason == "completed");
        CHECK(end.rc == 0);
        std::string counted;
        std::string outcomes;
        for (const Record& record : world.records()) {
            if (record.type != RecordType::iteration_end) continue;
            counted += std::to_string(record.count("counted"));
            outcomes += record.word("outcome") + " ";
        }
        CHECK(counted == row.counted);
        CHECK(outcomes == row.outcomes);
        CHECK(world.state.failures == std::count(counted.begin(), counted.end(), '1'));
        CHECK(world.sh("git log --format=%s") == (row.iterations == 7 ? "int speed = 7;\nbase" : "base"));
        CHECK(world.read("tests/cases.txt") == "cases\n");
    }
}

TEST_CASE("engine: policy fail ends the run with the stage's status, or 1 where it has none") {
    for (const int status : {6, 0}) {
        EngineWorld world;
        world.settings.isolation = Isolation::inplace;
        world.stages.push_back(std::make_unique<ScriptedStage>("tests", Policy::fail, [&](const StageContext&) {
            StageResult result;
            result.verdict = StageVerdict::fail;
            result.exit_status = status;
            return result;
        }));
        ScriptedAgent agent({world.commits("int speed = 2;\n")});
        const RunEnd end = world.run(agent);
        CHECK(end.reason == "tests");
        CHECK(end.rc == (status == 0 ? 1 : status));
        CHECK(world.head() == world.base);
        // What the last line says is in the journal, too.
        const Record last = world.records().back();
        CHECK(last.type == RecordType::stop);
        CHECK(last.word("reason") == "tests");
        CHECK(last.count("rc") == end.rc);
        CHECK(last.count("last_iteration") == 1);
    }
}

TEST_CASE("engine: what the loop adds to a prompt is asked for before each attempt: a held TPU may move") {
    EngineWorld world;
    world.settings.isolation = Isolation::inplace;
    world.settings.options.codex_retries = 1;
    world.settings.prompt_template = "do";
    world.settings.directives = {"mine"};
    int asked = 0;
    world.directive = [&asked] { return " on cluster " + std::to_string(++asked) + "\n"; };
    ScriptedAgent agent({[](const AgentRequest&) { return ended(AgentClass::failed, AgentAction::retry, 1); },
                         world.commits("int speed = 2;\n")});
    CHECK(world.run(agent).reason == "completed");
    REQUIRE(agent.prompts.size() == 2);
    CHECK(agent.prompts[0].ends_with("[Directive 1]\nmine\n[Directive 2]\non cluster 1\n"));
    CHECK(agent.prompts[1].ends_with("[Directive 2]\non cluster 2\n"));
    // Both are on disk as they were sent.
    CHECK(read_text(world.log_dir() / "iteration-001-prompt.txt") == agent.prompts[1]);
    CHECK(read_text(world.log_dir() / "iteration-001-prompt.earlier.txt") == agent.prompts[0]);
}

// SIGINT or SIGTERM after each step of an iteration in place that set the user's work aside: each session gets one
// step further.
TEST_CASE("engine: a stop after each step gives the user's work back, and --resume goes on with the next") {
    EngineWorld world;
    world.settings.isolation = Isolation::inplace;
    world.settings.options.dirty_policy = DirtyPolicy::stash;
    world.stages.push_back(
        std::make_unique<ScriptedStage>("tests", Policy::fail, [](const StageContext&) { return StageResult(); }));
    world.write("mine.txt", "mine\n");
    ScriptedAgent agent({[&](const AgentRequest& request) {
        CHECK_FALSE(fs::exists(request.worktree / "mine.txt"));
        return world.commits("int speed = 2;\n")(request);
    }});
    world.stop_after_look = 5;  // resume, the stash's name, stash_intent, stashed, and one more
    int sessions = 0;
    for (;; ++sessions) {
        CAPTURE(sessions);
        REQUIRE(sessions < 20);
        world.stop = std::stop_source();
        const RunEnd end = world.run(agent, sessions > 0);
        CHECK(world.read("mine.txt") == "mine\n");
        CHECK(world.sh("git stash list").empty());
        if (end.reason == "completed") break;
        CHECK(end.reason == "interrupted");
        CHECK(end.rc == 130);
    }
    CHECK(sessions >= 6);
    CHECK(agent.calls == 1);
    CHECK(world.state.outcomes == std::map<std::string, int>{{"accepted", 1}});
    CHECK(world.status() == "?? mine.txt");
    CHECK(world.sh("git log --format=%s") == "int speed = 2;\nbase");
}

}  // namespace gdnctl::loop
