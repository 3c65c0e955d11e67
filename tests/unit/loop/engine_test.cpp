// The engine with scripted agents and stages on real git, without real time.
#include "engine_world.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

TEST_CASE("engine: waits for the provider without counting it, and tells when it gives up") {
    EngineWorld world;
    ScriptedAgent agent({[](const AgentRequest&) { return ended(AgentClass::rate_limit, AgentAction::back_off, 1); },
                         [](const AgentRequest&) { return ended(AgentClass::unreachable, AgentAction::back_off, 1); },
                         world.commits("int speed = 2;\n")});
    CHECK(world.run(agent).reason == "completed");
    CHECK(agent.calls == 3);
    CHECK(world.state.failures == 0);
    CHECK(world.read("kernel.c") == "int speed = 2;\n");

    EngineWorld other;
    other.settings.longest_wait_s = 100;
    ScriptedAgent never({[](const AgentRequest&) { return ended(AgentClass::rate_limit, AgentAction::back_off, 1); }});
    const RunEnd end = other.run(never);
    CHECK(end.reason == "agent-error");
    CHECK(end.rc == 1);
}

TEST_CASE("engine: a usage limit is slept over until it resets") {
    EngineWorld world;
    const auto reset = world.clock.wall() + std::chrono::hours(2);
    ScriptedAgent agent({[&](const AgentRequest&) {
                             AgentOutcome outcome = ended(AgentClass::usage_limit, AgentAction::wait_until, 1);
                             outcome.not_before = reset;
                             return outcome;
                         },
                         world.commits("int speed = 2;\n")});
    CHECK(world.run(agent).reason == "completed");
    CHECK(world.clock.wall() >= reset);
}

TEST_CASE("engine: a usage limit that resets after the longest wait ends the run, whatever may fail") {
    EngineWorld world;
    world.settings.options.max_failures = -1;
    world.settings.options.iterations = 5;
    world.settings.longest_wait_s = 3600;
    ScriptedAgent agent({[&](const AgentRequest&) {
        AgentOutcome outcome = ended(AgentClass::usage_limit, AgentAction::wait_until, 1);
        outcome.not_before = world.clock.wall() + std::chrono::hours(30);
        return outcome;
    }});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "agent-error");
    CHECK(end.rc == 1);
    CHECK(end.iteration == 1);
    CHECK(agent.calls == 1);
}

TEST_CASE("engine: what no retry can help ends the run with the agent's status") {
    EngineWorld world;
    world.settings.options.max_failures = -1;
    world.settings.options.codex_retries = 3;
    world.settings.options.iterations = 5;
    ScriptedAgent agent({[](const AgentRequest&) {
        AgentOutcome outcome = ended(AgentClass::authentication, AgentAction::stop_loop, 1);
        outcome.stop_reason = "codex-auth";
        return outcome;
    }});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "codex-auth");
    CHECK(end.rc == 1);
    CHECK(agent.calls == 1);
}

TEST_CASE("engine: failures are followed by a pause that grows (defect 17)") {
    EngineWorld world;
    world.settings.options.iterations = 3;
    world.settings.options.max_failures = -1;
    ScriptedAgent agent({[](const AgentRequest&) { return ended(AgentClass::failed, AgentAction::count, 9); }});
    CHECK(world.run(agent).reason == "completed");
    std::chrono::milliseconds sum{0};
    for (const auto slept : world.clock.sleeps()) sum += slept;
    CHECK(sum == std::chrono::seconds(10 + 20));
    CHECK(world.state.failures == 3);
}

TEST_CASE("engine: the pause does not grow after work that was judged, however often it is refused") {
    EngineWorld world;
    world.settings.options.iterations = 4;
    world.settings.options.max_failures = -1;
    world.stages.push_back(std::make_unique<ScriptedStage>("tests", Policy::count_failure, [](const StageContext&) {
        StageResult result;
        result.verdict = StageVerdict::fail;
        result.outcome = Outcome::test_fail;
        return result;
    }));
    int speed = 1;
    ScriptedAgent agent({[&](const AgentRequest& request) {
        return world.commits("int speed = " + std::to_string(++speed) + ";\n")(request);
    }});
    CHECK(world.run(agent).reason == "completed");
    std::chrono::milliseconds sum{0};
    for (const auto slept : world.clock.sleeps()) sum += slept;
    CHECK(sum == std::chrono::seconds(5 * 3));
    CHECK(world.state.failures == 4);
}

TEST_CASE("engine: a branch that moved meanwhile: the work follows it and is judged again") {
    EngineWorld world;
    int judged = 0;
    world.stages.push_back(
        std::make_unique<ScriptedStage>("tests", Policy::fail, [&](const StageContext& context) -> StageResult {
            if (++judged == 1) {
                world.write("other.c", "int other;\n");
                world.commit("somebody else");
            }
            CHECK(context.candidate.head == world.sh("git rev-parse HEAD", context.tree));
            return {};
        }));
    ScriptedAgent agent({world.commits("int speed = 2;\n")});
    CHECK(world.run(agent).reason == "completed");
    CHECK(judged == 2);
    CHECK(world.read("kernel.c") == "int speed = 2;\n");
    CHECK(world.read("other.c") == "int other;\n");
    CHECK(world.sh("git rev-list --count HEAD") == "3");
}

TEST_CASE("engine: accepted work that conflicts with a branch that moved stays on its ref") {
    EngineWorld world;
    world.stages.push_back(
        std::make_unique<ScriptedStage>("tests", Policy::fail, [&](const StageContext&) -> StageResult {
            world.write("kernel.c", "int speed = 77;\n");
            world.commit("somebody else");
            return {};
        }));
    ScriptedAgent agent({world.commits("int speed = 2;\n")});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "landing");
    CHECK(end.rc == 2);
    CHECK(world.read("kernel.c") == "int speed = 77;\n");
    CHECK(world.sh("git show refs/gdnctl/r1/iter-001/head:kernel.c") == "int speed = 2;");
}

TEST_CASE("engine: with gates a change of logs alone is no change, is kept, and no stage is spent on it (defect 6)") {
    EngineWorld world;
    world.settings.gates = true;
    bool judged = false;
    world.stages.push_back(
        std::make_unique<ScriptedStage>("tests", Policy::fail, [&](const StageContext&) -> StageResult {
            judged = true;
            return {};
        }));
    ScriptedAgent agent({[&](const AgentRequest& request) {
        write_text(request.worktree / "log.md", "# Log\nfailed attempt\n");
        world.sh("git commit -q -am log", request.worktree);
        return good();
    }});
    CHECK(world.run(agent).reason == "completed");
    CHECK_FALSE(judged);
    CHECK(world.state.outcomes.at("no-op") == 1);
    CHECK(world.read("log.md") == "# Log\nfailed attempt\n");
}

TEST_CASE("engine: the log has a commit of its own, which a refused candidate does not take along (defects 2, 6)") {
    EngineWorld world;
    world.settings.options.max_failures = -1;
    world.settings.gates = true;
    world.log_entry = [](int iteration, std::span<const Record> records) -> Result<std::optional<LogEntry>> {
        const std::string outcome = last_of(records, RecordType::decision)->word("outcome");
        LogEntry entry;
        entry.files["log.md"] = "# Log\n" + std::to_string(iteration) + " " + outcome + "\n";
        entry.message = "Log\n";
        return std::optional(std::move(entry));
    };
    world.stages.push_back(
        std::make_unique<ScriptedStage>("tests", Policy::count_failure, [&](const StageContext&) -> StageResult {
            StageResult result;
            result.verdict = StageVerdict::fail;
            result.reason = "slower";
            return result;
        }));
    ScriptedAgent agent({world.commits("int speed = 0;\n")});
    CHECK(world.run(agent).reason == "completed");
    CHECK(world.read("log.md") == "# Log\n1 rejected\n");
    CHECK(world.read("kernel.c") == "int speed = 1;\n");
    CHECK(world.status().empty());
}

TEST_CASE("engine: an entry that cannot be made takes nothing back of what was accepted") {
    EngineWorld world;
    world.settings.gates = true;
    world.log_entry = [](int, std::span<const Record>) -> Result<std::optional<LogEntry>> {
        return fail(ErrorKind::usage, "git does not know who commits");
    };
    ScriptedAgent agent({world.commits("int speed = 0;\n")});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "completed");
    CHECK(end.rc == 0);
    CHECK(world.state.outcomes.at("accepted") == 1);
    CHECK(world.read("kernel.c") == "int speed = 0;\n");
}

TEST_CASE("engine: an entry goes on top of what the branch is then, and what others wrote into the log stays") {
    EngineWorld world;
    world.settings.gates = true;
    int asked = 0;
    world.log_entry = [&](int, std::span<const Record>) -> Result<std::optional<LogEntry>> {
        LogEntry entry;
        entry.tip = world.sh("git rev-parse refs/heads/main");
        entry.files["log.md"] = world.read("log.md") + "ours\n";
        entry.message = "Log\n";
        if (++asked == 1) {  // somebody commits between the look and the commit
            world.sh("echo theirs >>log.md && git commit -qam theirs");
        }
        return std::optional(std::move(entry));
    };
    ScriptedAgent agent({world.commits("int speed = 0;\n")});
    CHECK(world.run(agent).reason == "completed");
    CHECK(asked == 2);
    CHECK(world.read("log.md") == "# Log\ntheirs\nours\n");
    CHECK(world.sh("git log -1 --format=%s") == "Log");
}

TEST_CASE("engine: each iteration adds as much to the journal as the first, so that it is short after a thousand") {
    EngineWorld world;
    world.settings.options.iterations = 6;
    int speed = 1;
    ScriptedAgent agent({[&](const AgentRequest& request) {
        return world.commits("int speed = " + std::to_string(++speed) + ";\n")(request);
    }});
    CHECK(world.run(agent).reason == "completed");
    std::map<int, std::size_t> bytes;
    std::map<int, std::size_t> count;
    const std::string journal = read_text(world.log_dir() / "journal.jsonl");
    const auto records = world.records();
    std::size_t at = 0;
    for (const Record& record : records) {
        const std::size_t end = journal.find('\n', at) + 1;
        bytes[record.iteration] += end - at;
        ++count[record.iteration];
        at = end;
    }
    CHECK(at == journal.size());
    REQUIRE(count.size() == 7);  // 0: of the run
    for (int i = 1; i <= 6; ++i) {
        CAPTURE(i);
        CHECK(count[i] == count[1]);
        CHECK(bytes[i] < bytes[1] + 16);  // numbers get longer
        CHECK(bytes[i] < 4096);
    }
    CHECK(fs::file_size(world.log_dir() / "state.json") < 2048);
}

TEST_CASE("engine: budgets end a run before an iteration begins, with their reason") {
    EngineWorld world;
    world.settings.options.iterations = 9;
    world.settings.options.max_failures = -1;
    world.settings.budget.tokens = 100;
    ScriptedAgent agent({[](const AgentRequest& request) {
        CHECK(request.limits.tokens <= 100);
        AgentOutcome outcome = ended(AgentClass::failed, AgentAction::count, 1);
        outcome.tokens = AgentTokens{50, 0, 10, 0};
        return outcome;
    }});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "max-tokens");
    CHECK(end.rc == 0);
    CHECK(end.iteration == 2);

    EngineWorld late;
    late.settings.options.iterations = 9;
    late.settings.options.max_failures = -1;
    late.settings.budget.wall_s = 3600;
    ScriptedAgent slow({[&](const AgentRequest&) {
        late.clock.advance(std::chrono::minutes(40));
        return ended(AgentClass::failed, AgentAction::count, 1);
    }});
    CHECK(late.run(slow).reason == "max-wall");
    CHECK(slow.calls == 2);
}

TEST_CASE("engine: a stop in the middle leaves the iteration open, and --resume repeats it under its number") {
    EngineWorld world;
    world.settings.options.iterations = 2;
    ScriptedAgent agent({[&](const AgentRequest& request) {
        write_text(request.worktree / "half.c", "int half;\n");
        world.stop.request_stop();
        return ended(AgentClass::stopped, AgentAction::count, 130);
    }});
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "interrupted");
    CHECK(end.rc == 130);
    CHECK(world.sh("git show refs/gdnctl/r1/iter-001/attempt-1/leftovers:half.c") == "int half;");
    world.stop = std::stop_source();
    int speed = 1;
    ScriptedAgent again({[&](const AgentRequest& request) {
        CHECK_FALSE(fs::exists(request.worktree / "half.c"));
        return world.commits("int speed = " + std::to_string(++speed) + ";\n")(request);
    }});
    CHECK(world.run(again, true).reason == "completed");
    CHECK(again.prompts == std::vector<std::string>{"do 1", "do 2"});
    CHECK(world.state.ended == 2);
}

TEST_CASE("engine: a disk that is full ends the run with 8, and --resume finishes the iteration") {
    EngineWorld world;
    ScriptedAgent agent({world.commits("int speed = 2;\n")});
    world.stages.push_back(
        std::make_unique<ScriptedStage>("tests", Policy::fail, [&](const StageContext& context) -> StageResult {
            // From here on nothing can be written there.
            fs::rename(context.artefacts.folder() / "state.json", context.artefacts.folder() / "kept");
            fs::create_directory(context.artefacts.folder() / "state.json");
            return {};
        }));
    const RunEnd end = world.run(agent);
    CHECK(end.reason == "local-io");
    CHECK(end.rc == 8);
    CHECK(world.head() == world.base);
    fs::remove(world.log_dir() / "state.json");
    fs::rename(world.log_dir() / "kept", world.log_dir() / "state.json");
    world.stages.clear();
    ScriptedAgent none({[](const AgentRequest&) -> AgentOutcome {
        FAIL("the attempt has ended: it is not repeated");
        return {};
    }});
    CHECK(world.run(none, true).reason == "completed");
    CHECK(world.read("kernel.c") == "int speed = 2;\n");
}

TEST_CASE("engine: what fails while a disk is full is nobody's failure, and --resume repeats it") {
    EngineWorld world;
    world.settings.isolation = Isolation::inplace;
    world.settings.options.dirty_policy = DirtyPolicy::stash;
    world.write("mine.txt", "mine\n");
    bool full = true;
    world.room = [&]() -> Status { return full ? fail(ErrorKind::local_io, "the disk is full") : Status(); };
    ScriptedAgent failing({[](const AgentRequest& request) {
        write_text(request.worktree / "half.c", "half\n");
        return ended(AgentClass::failed, AgentAction::retry, 1);
    }});
    CHECK(world.run(failing).reason == "local-io");
    CHECK(world.status() == "?? mine.txt");
    ScriptedAgent idle({[](const AgentRequest&) { return good(); }});
    CHECK(world.run(idle, true).reason == "local-io");
    ScriptedAgent agent({world.commits("int speed = 2;\n")});
    int checks = 0;
    world.stages.push_back(std::make_unique<ScriptedStage>("tests", Policy::fail, [&](const StageContext&) {
        StageResult result;
        if (checks++ == 0) result.verdict = StageVerdict::fail;
        return result;
    }));
    const RunEnd end = world.run(agent, true);
    CHECK(end.reason == "local-io");
    CHECK(end.rc == 8);
    full = false;
    CHECK(world.run(agent, true).reason == "completed");
    CHECK(agent.calls == 1);
    CHECK(checks == 2);
    CHECK(world.state.outcomes == std::map<std::string, int>{{"accepted", 1}});
    CHECK(world.read("mine.txt") == "mine\n");
    CHECK(world.status() == "?? mine.txt");
    CHECK(world.sh("git ls-tree -r --name-only " + world.ref("iter-001/attempt-1/leftovers")).find("half.c") !=
          std::string::npos);
}

}  // namespace gdnctl::loop
