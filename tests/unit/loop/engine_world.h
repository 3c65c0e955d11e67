// An engine in tests: scripted agents and stages on real git, without real time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loop/engine/engine.h"
#include "loop_world.h"

namespace gdnctl::loop {

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

struct EngineWorld : LoopWorld {
    EngineWorld() {
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
        EngineParts parts{agent, git, files, journal, stopping};
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

}  // namespace gdnctl::loop
