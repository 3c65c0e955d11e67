// A whole evolve run on real git, with the scripted agent and the synthetic scorer.
#include "loop/evolve/driver.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "loop/evolve/synthetic.h"
#include "loop/evolve/verify.h"
#include "support/git_repo.h"

namespace gdnctl::loop::evolve {

using test::ok;

namespace {

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
    DriverEnd run(int attempts) {
        const auto repository = ok(GitCheckout::open(path(), system_process(), clock));
        Store store(repository, "r1", {{"kernel.c"}, {"tests/**"}}, outside("worktrees"), system_process(), clock);
        auto journal = ok(EvolveJournal::open(log_dir()));
        SyntheticScorer scorer(repository, 5);
        ScriptedAgent agent(5);
        const bool resumed = journal.state().begun();
        Driver driver(settings(attempts), DriverParts{store, journal, scorer, agent, clock});
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
            out.push_back(record["draws"].dump() + record["operator"].get<std::string>() + record["parents"].dump());
            return {};
        }));
        return out;
    }
    std::string base;
    std::filesystem::path folder;
    State state;
};

}  // namespace

TEST_CASE("evolve run: candidates on refs, a best one, and the user's branch where it was") {
    EvolveWorld world;
    const DriverEnd end = world.run(10);
    CHECK(end.reason == "max-attempts");
    CHECK(end.attempt == 10);
    CHECK(end.rc == 0);
    REQUIRE(world.state.best != 0);
    CHECK(world.ref("best") == world.state.at(world.state.best).commit);
    CHECK(world.ref("base") == world.base);
    CHECK(world.sh("git rev-parse HEAD") == world.base);
    CHECK(world.sh("git status --porcelain").empty());
    CHECK(world.sh("git branch").find("gdnctl") == std::string::npos);
    CHECK(world.sh("git stash list").empty());
    CHECK(world.sh("git worktree list | wc -l") == "1");
    CHECK(world.sh("git fsck --no-dangling 2>&1").empty());
    for (const Attempt& one : world.state.attempts) {
        if (one.number == 0 || one.commit.empty()) continue;
        CHECK(world.ref("cand/" + std::to_string(one.number)) == one.commit);
        // Only mutable paths, one parent, and who made it.
        CHECK(world.sh("git diff --name-only " + world.base + " " + one.commit) == "kernel.c");
        CHECK(world.sh("git log -1 --format=%B " + one.commit).find("Gdnctl-Attempt: " + std::to_string(one.number)) !=
              std::string::npos);
    }
    const auto counts = world.state.verdicts();
    CHECK(counts.at("kept") >= 1);
    CHECK(world.sh("git notes --ref=refs/notes/gdnctl-r1 show " + world.ref("best")).find("kept") != std::string::npos);
    for (int n = 1; n <= 10; ++n) {
        for (const char* file : {"prompt.md", "response.txt", "diff.patch"}) {
            CHECK(std::filesystem::exists(world.folder / attempt_folder(n) / file));
        }
    }
    const auto repository = ok(GitCheckout::open(world.path(), system_process(), world.clock));
    const StoreCheck found = ok(check_store(repository, world.state));
    CHECK(found.missing.empty());
    CHECK(found.unlisted.empty());
}

TEST_CASE("evolve run: going on later chooses what an undisturbed run chooses") {
    EvolveWorld whole, parts;
    CHECK(whole.run(6).rc == 0);
    CHECK(parts.run(2).reason == "max-attempts");
    CHECK(parts.run(2).reason == "max-attempts");  // nothing is left to do
    const auto records = parts.state.records;
    CHECK(parts.run(2).reason == "max-attempts");
    CHECK(parts.state.records == records);
    CHECK(parts.run(4).attempt == 4);
    CHECK(parts.run(6).attempt == 6);
    CHECK(parts.choices() == whole.choices());
    CHECK(parts.state.best == whole.state.best);
    CHECK(parts.ref("best") != parts.base);
}

TEST_CASE("evolve run: STOP ends it before an attempt, and a landed candidate moves the branch") {
    EvolveWorld world;
    world.run(6);
    REQUIRE(world.state.best != 0);
    test::write_text(world.folder / "STOP", "");
    CHECK(world.run(12).reason == "stop-file");
    CHECK(world.state.attempts.size() == 7);
    const auto repository = ok(GitCheckout::open(world.path(), system_process(), world.clock));
    world.write("tests/cases.txt", "mine\n");
    CHECK(check_branch(repository, world.state).error().kind == ErrorKind::config);
    world.sh("git checkout -q tests/cases.txt");
    REQUIRE(check_branch(repository, world.state));
    REQUIRE(land_on_branch(repository, world.state, world.ref("best")));
    CHECK(world.sh("git rev-parse HEAD") == world.ref("best"));
    CHECK(world.sh("git status --porcelain").empty());
    CHECK(check_branch(repository, world.state).error().kind == ErrorKind::conflict);  // it moved
}

}  // namespace gdnctl::loop::evolve
