// A repository for a whole evolve run, with the scripted agent and the synthetic scorer, and what can go wrong there.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "loop/evolve/driver.h"
#include "loop/evolve/synthetic.h"
#include "loop/evolve/verify.h"
#include "support/git_repo.h"

namespace gdnctl::loop::evolve {

using test::ok;

using LaunchInstead = std::function<std::optional<Launch>(LaunchKind kind, const std::filesystem::path& log)>;
using RunInstead = std::function<std::optional<AgentOutcome>(const AgentRequest& request)>;

// With a stage for each kind of launch.
class Scorer final : public Evaluator {
public:
    Scorer(const GitCheckout& repository, const LaunchInstead& instead) : m_inner(repository, 5), m_instead(instead) {}
    bool has(LaunchKind kind) const override { return kind != LaunchKind::build || m_instead; }
    bool higher_is_better() const override { return false; }
    Result<Launch> launch(LaunchKind kind, const std::string& commit, const std::filesystem::path& log) override {
        if (m_instead) {
            if (auto launch = m_instead(kind, log)) return std::move(*launch);
        }
        return m_inner.launch(kind, commit, log);
    }

private:
    SyntheticScorer m_inner;
    const LaunchInstead& m_instead;
};

class Scripted final : public Agent {
public:
    explicit Scripted(const RunInstead& instead) : m_instead(instead) {}
    std::string_view name() const override { return m_inner.name(); }
    Result<AgentOutcome> run(const AgentRequest& request) override {
        if (m_instead) {
            if (auto outcome = m_instead(request)) return std::move(*outcome);
        }
        return m_inner.run(request);
    }

private:
    ScriptedAgent m_inner{5};
    const RunInstead& m_instead;
};

struct EvolveWorld : test::GitRepo {
    EvolveWorld() {
        write("kernel.c", "/* base */\nint speed = 10000;\n");
        write("tests/cases.txt", "cases\n");
        write("gdnctl.toml", "# configuration\n");
        base = commit("base");
        folder = outside("log");
        std::filesystem::create_directories(folder);
        std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
    }
    std::filesystem::path log_dir() const { return folder; }
    DriverSettings settings(int attempts) const {
        DriverSettings s;
        s.start.run = "r1";
        s.start.loop_id = "evolve-driver-test";
        s.start.seed = 5;
        s.start.base = base;
        s.start.config = R"({"lineages":2,"stagnation":3})";
        s.start.evaluator = "e";
        s.budget.attempts = attempts;
        s.log_dir = log_dir();
        return s;
    }
    DriverEnd run(int attempts) { return run(attempts, clock); }
    DriverEnd run(int attempts, Clock& by) {
        const auto repository = ok(GitCheckout::open(path(), system_process(), clock));
        Store store(repository, "r1", {{"kernel.c"}, {"tests/**"}}, outside("worktrees"), system_process(), by);
        auto journal = ok(EvolveJournal::open(log_dir()));
        Scorer scorer(repository, launch_instead);
        Scripted agent(run_instead);
        const bool resumed = journal.state().begun();
        DriverSettings s = settings(attempts);
        if (change) change(s);
        Driver driver(std::move(s), DriverParts{store, journal, scorer, agent, by, {}, {}, room});
        const DriverEnd end = driver.run(resumed);
        state = journal.state();
        return end;
    }
    std::string ref(const std::string& name) const {
        return sh("git rev-parse --verify -q refs/gdnctl/evolve/r1/" + name + " || true");
    }
    std::vector<std::string> choices() const {
        std::vector<std::string> out;
        CHECK(each_record(folder, [&](const Json& record, std::size_t) -> Status {
            if (record["type"] != "attempt_start") return {};
            std::string parents;
            for (const auto& parent : record["parents"]) parents += " " + parent["attempt"].dump();
            out.push_back(record["draws"].dump() + record["operator"].get<std::string>() + parents);
            return {};
        }));
        return out;
    }
    std::string base;
    std::filesystem::path folder;
    State state;
    // What goes wrong in a run, where something does.
    LaunchInstead launch_instead;
    RunInstead run_instead;
    std::function<Status()> room;
    std::function<void(DriverSettings&)> change;
};

// Every attempt was drawn as the rule says for what was on record before it.
inline void check_draws(const EvolveWorld& world) {
    State before;
    CHECK(each_record(world.folder, [&](const Json& record, std::size_t line) -> Status {
        if (record["type"] == "attempt_start") {
            const Pick one = pick(before.members(), record["attempt"], before.rules);
            CHECK(record["operator"] == to_text(one.op));
            CHECK(record["lineage"] == one.lineage);
            REQUIRE(record["parents"].size() == one.parents.size());
            CHECK(record["parents"][0]["attempt"] == one.parents.front());
            REQUIRE(record["draws"].size() == one.draws.size());
            for (std::size_t i = 0; i < one.draws.size(); ++i) CHECK(record["draws"][i]["u"] == one.draws[i].u);
        }
        return before.apply(record, "journal", line);
    }));
}

inline void check_whole(EvolveWorld& world, int attempts) {
    const auto repository = ok(GitCheckout::open(world.path(), system_process(), world.clock));
    world.state = ok(load_state(world.folder));
    CHECK(world.state.spent.attempts == attempts);
    CHECK(world.state.open.number == 0);
    const StoreCheck found = ok(check_store(repository, world.state));
    CHECK(found.gone.empty());
    CHECK(found.unpinned.empty());
    CHECK(world.ref("best") == world.state.at(world.state.best).commit);
    CHECK(world.sh("git rev-parse HEAD") == world.base);
    CHECK(world.sh("git status --porcelain; git stash list").empty());
    CHECK(world.sh("git worktree list | wc -l") == "1");
    CHECK(world.sh("git fsck --no-dangling 2>&1").empty());
    check_draws(world);
}

}  // namespace gdnctl::loop::evolve
