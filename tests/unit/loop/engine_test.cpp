// An engine in tests: scripted agents and stages on real git, without real time.
#include "loop/engine/engine.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "loop_fixture.h"

namespace gdnctl::loop {

namespace {

// Each call is one attempt; the last entry is repeated.
class ScriptedAgent final : public Agent {
public:
    using Play = std::function<AgentOutcome(const AgentRequest&)>;
    explicit ScriptedAgent(std::vector<Play> plays) : m_plays(std::move(plays)) {}
    std::string_view name() const override { return "scripted"; }
    Result<AgentOutcome> run(const AgentRequest& request) override {
        const std::size_t index = std::min(calls++, m_plays.size() - 1);
        prompts.push_back(request.prompt);
        return m_plays[index](request);
    }
    std::size_t calls = 0;
    std::vector<std::string> prompts;

private:
    std::vector<Play> m_plays;
};

class ScriptedStage final : public Stage {
public:
    ScriptedStage(std::string name, Policy policy, std::function<StageResult(const StageContext&)> play)
        : m_name(std::move(name)), m_policy(policy), m_play(std::move(play)) {}
    std::string_view name() const override { return m_name; }
    Policy policy() const override { return m_policy; }
    bool wants(DiffClass diff) const override { return diff == DiffClass::change; }
    Result<StageResult> run(const StageContext& context) override { return m_play(context); }

private:
    std::string m_name;
    Policy m_policy;
    std::function<StageResult(const StageContext&)> m_play;
};

inline AgentOutcome ended(AgentClass kind, AgentAction action, int status) {
    AgentOutcome outcome;
    outcome.kind = kind;
    outcome.action = action;
    outcome.exit_status = status;
    outcome.reason = std::string(word_of(kind));
    return outcome;
}
inline AgentOutcome good() { return ended(AgentClass::ok, AgentAction::proceed, 0); }

// Asks for the end when it is looked at for the `n`-th time: the journal does, once a record, and names with a time in
// them.
class StoppingClock final : public Clock {
public:
    StoppingClock(Clock& clock, std::stop_source& stop, int n) : m_clock(clock), m_stop(stop), m_left(n) {}
    WallTime wall() const override {
        if (--m_left == 0) m_stop.request_stop();
        return m_clock.wall();
    }
    Monotonic monotonic() const override { return m_clock.monotonic(); }
    bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) override {
        return m_clock.sleep_for(d, std::move(stop));
    }

private:
    Clock& m_clock;
    std::stop_source& m_stop;
    mutable int m_left;
};

struct EngineFixture : LoopFixture {
    EngineFixture() {
        settings.options.iterations = 1;
        settings.options.model.clear();
        settings.run = "r1";
        settings.loop_id = "engine-test";
        settings.prompt_template = "do {{ITERATION}}";
        settings.isolation = Isolation::worktree;
    }
    ScriptedAgent::Play commits(const std::string& text) const {
        return [this, text](const AgentRequest& request) {
            write_text(request.worktree / "kernel.c", text);
            sh("git commit -q -am '" + text + "'", request.worktree);
            return good();
        };
    }
    RunEnd run(ScriptedAgent& agent, bool resumed = false) {
        const Artefacts files = ok(Artefacts::open(log_dir()));
        Transactions git = transactions(settings.isolation, resumed);
        LoopJournal journal = ok(LoopJournal::open(log_dir() / "journal.jsonl"));
        StoppingClock stopping(clock, stop, stop_after_look);
        EngineDeps parts{agent, git, files, journal, stopping};
        parts.stages = stages;
        parts.log_entry = log_entry;
        if (directive) parts.directives.emplace_back([&](std::span<const Record>) { return std::vector{directive()}; });
        parts.room = room;
        parts.held_ms = held_ms;
        parts.stop = stop.get_token();
        Engine engine(settings, std::move(parts));
        const RunEnd end = engine.run(resumed);
        state = engine.state();
        return end;
    }
    std::vector<Record> records() const { return ok(parse_records(read_text(log_dir() / "journal.jsonl"), "journal")); }
    EngineSettings settings;
    std::vector<std::unique_ptr<Stage>> stages;
    std::function<Result<std::optional<LogEntry>>(int, std::span<const Record>)> log_entry;
    std::function<std::string()> directive;
    std::function<Status()> room;
    std::function<std::int64_t()> held_ms;
    std::stop_source stop;
    int stop_after_look = 0;  // 0: never
    RunState state;
};

}  // namespace

}  // namespace gdnctl::loop

// The engine with scripted agents and stages on real git, without real time.
namespace fs = std::filesystem;

namespace gdnctl::loop {

TEST_CASE("engine: waits for the provider without counting it, and tells when it gives up") {
    EngineFixture world;
    ScriptedAgent agent({[](const AgentRequest&) { return ended(AgentClass::rate_limit, AgentAction::back_off, 1); },
                         [](const AgentRequest&) { return ended(AgentClass::unreachable, AgentAction::back_off, 1); },
                         world.commits("int speed = 2;\n")});
    CHECK(world.run(agent).reason == "completed");
    CHECK(agent.calls == 3);
    CHECK(world.state.failures == 0);
    CHECK(world.read("kernel.c") == "int speed = 2;\n");

    EngineFixture other;
    other.settings.longest_wait_s = 100;
    ScriptedAgent never({[](const AgentRequest&) { return ended(AgentClass::rate_limit, AgentAction::back_off, 1); }});
    const RunEnd end = other.run(never);
    CHECK(end.reason == "agent-error");
    CHECK(end.rc == 1);
}

TEST_CASE("engine: a usage limit is slept over until it resets") {
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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

    EngineFixture late;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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

// What an engine makes of each outcome under each policy, and of a stop after each of its steps.

namespace gdnctl::loop {

TEST_CASE("engine: with gates no stage is spent where nothing was committed, or an empty commit (defect 7)") {
    EngineFixture world;
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
        EngineFixture world;
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
        EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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

namespace gdnctl::loop {

// When an engine gives up: trouble that the next iteration would meet again.

namespace {

AgentOutcome says(AgentClass kind, AgentAction action, const std::string& reason) {
    AgentOutcome outcome = ended(kind, action, 1);
    outcome.reason = reason;
    outcome.explained = true;
    return outcome;
}

TEST_CASE("engine: a prompt that the model refuses in two iterations running ends the run") {
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
            EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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
    EngineFixture world;
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

// A clock that is set back while a run is under way, and before it is taken up again.

namespace {

using Days = std::chrono::days;

// Commits, and sets the clock by so much.
class ClockAgent final : public Agent {
public:
    ClockAgent(const LoopFixture& world, Days set_by) : m_world(world), m_set_by(set_by) {}
    std::string_view name() const override { return "clock"; }
    Result<AgentOutcome> run(const AgentRequest& request) override {
        m_world.clock.jump_wall(m_set_by);
        m_world.clock.advance(std::chrono::minutes(1));
        const std::string text = "int speed = " + std::to_string(++m_speed) + ";\n";
        write_text(request.worktree / "kernel.c", text);
        m_world.sh("git commit -q -am '" + text + "'", request.worktree);
        AgentOutcome outcome;
        outcome.kind = AgentClass::ok;
        outcome.action = AgentAction::proceed;
        return outcome;
    }

private:
    const LoopFixture& m_world;
    Days m_set_by;
    static inline int m_speed = 1;
};

RunEnd run(const LoopFixture& world, int iterations, Isolation isolation, Days set_by, bool resumed) {
    EngineSettings settings;
    settings.options.iterations = iterations;
    settings.options.dirty_policy = DirtyPolicy::stash;
    settings.run = "r1";
    settings.loop_id = "clock-test";
    settings.prompt_template = "do {{ITERATION}}";
    settings.isolation = isolation;
    settings.budget.wall_s = 3600;
    ClockAgent agent(world, set_by);
    const Artefacts files = ok(Artefacts::open(world.log_dir()));
    Transactions git = world.transactions(isolation, resumed);
    LoopJournal journal = ok(LoopJournal::open(world.log_dir() / "journal.jsonl"));
    return Engine(settings, EngineDeps{agent, git, files, journal, world.clock}).run(resumed);
}

}  // namespace

TEST_CASE("faults: a clock that is set back in a run, or before --resume, changes nothing") {
    for (const Isolation isolation : {Isolation::worktree, Isolation::inplace}) {
        const LoopFixture world;
        world.write("mine.txt", "mine\n");
        const RunEnd first = run(world, 2, isolation, Days(-3), false);
        CHECK(first.reason == "completed");
        world.clock.jump_wall(Days(-400));
        const RunEnd second = run(world, 4, isolation, Days(0), true);
        CHECK(second.reason == "completed");
        CHECK(second.iteration == 4);
        CHECK(world.sh("git rev-list --count HEAD") == "5");
        CHECK(world.read("mine.txt") == "mine\n");
        CHECK(world.sh("git stash list").empty());
        const auto records = ok(parse_records(read_text(world.log_dir() / "journal.jsonl"), "journal"));
        CHECK(summarise(records, 4, false).outcomes == std::map<std::string, int>{{"accepted", 4}});
    }
}

}  // namespace gdnctl::loop
