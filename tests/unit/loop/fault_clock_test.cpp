// A clock that is set back while a run is under way, and before it is taken up again.
#include "loop/engine/engine.h"
#include "loop_world.h"

namespace gdnctl::loop {

namespace {

using Days = std::chrono::days;

// Commits, and sets the clock by so much.
class ClockAgent final : public Agent {
public:
    ClockAgent(const LoopWorld& world, Days set_by) : m_world(world), m_set_by(set_by) {}
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
    const LoopWorld& m_world;
    Days m_set_by;
    static inline int m_speed = 1;
};

RunEnd run(const LoopWorld& world, int iterations, Isolation isolation, Days set_by, bool resumed) {
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
    return Engine(settings, EngineParts{agent, git, files, journal, world.clock}).run(resumed);
}

}  // namespace

TEST_CASE("faults: a clock that is set back in a run, or before --resume, changes nothing") {
    for (const Isolation isolation : {Isolation::worktree, Isolation::inplace}) {
        const LoopWorld world;
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
