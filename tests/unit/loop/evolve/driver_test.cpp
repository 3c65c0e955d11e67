// A repository for a whole evolve run, with the scripted agent and the synthetic scorer, and what can go wrong there.
#include "loop/evolve/driver.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/json.h"
#include "loop/evolve/synthetic.h"
#include "loop/evolve/verify.h"
#include "platform/lock.h"
#include "support/git_repo.h"

namespace gdnctl::loop::evolve {

namespace {

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

}  // namespace

// A whole evolve run on real git, with the scripted agent and the synthetic scorer.

namespace {

// The process that asks it once too often is gone, as after kill -9: each record asks once, before it is written.
class DyingClock final : public Clock {
public:
    explicit DyingClock(int asks) : m_left(asks) {}
    WallTime wall() const override {
        if (m_left-- <= 0) _exit(9);
        return system_clock().wall();
    }
    Monotonic monotonic() const override { return system_clock().monotonic(); }
    bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) override {
        return system_clock().sleep_for(d, std::move(stop));
    }

private:
    mutable int m_left;
};

// A session in a process of its own, which dies with the record, or `after` that time; whether it came to its end.
bool session(EvolveWorld& world, int attempts, int asks, std::chrono::milliseconds after) {
    const pid_t child = fork();
    if (child == 0) {
        DyingClock clock(asks);
        try {
            _exit(world.run(attempts, clock).reason == "max-attempts" ? 0 : 8);
        } catch (...) {  // a failed REQUIRE: the world is the parent's
            _exit(8);
        }
    }
    if (after.count() > 0) {
        std::this_thread::sleep_for(after);
        kill(child, SIGKILL);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    const std::filesystem::path lock = world.folder / "journal.jsonl.lock";
    if (std::filesystem::exists(lock)) test::ok(FileLock::acquire(lock, {std::chrono::seconds(30)}));
    const bool died = (WIFEXITED(status) && WEXITSTATUS(status) == 9) || WIFSIGNALED(status);
    CHECK((died || (WIFEXITED(status) && WEXITSTATUS(status) == 0)));
    return !died;
}

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
    CHECK(found.gone.empty());
    CHECK(found.unpinned.empty());
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

// Sessions that die before their second record, third, ...: each boundary between two records is one of an end.
TEST_CASE("evolve run: kill -9 at every record of the journal") {
    EvolveWorld world;
    const int attempts = 3;
    int asks = 2, sessions = 0;
    while (!session(world, attempts, asks, {})) {
        REQUIRE(++sessions < 200);
        asks = asks == 7 ? 2 : asks + 1;
    }
    CHECK(sessions > 6);
    check_whole(world, attempts);
}

// 20 instants, or 200 with GDNCTL_SLOW=1.
TEST_CASE("evolve run: kill -9 at random instants") {
    EvolveWorld world;
    const int kills = std::getenv("GDNCTL_SLOW") != nullptr ? 200 : 20;
    std::uint64_t seed = 20'261'126;
    CAPTURE(seed);
    int attempts = 0, done = 0;
    // A session that is spared reaches its budget; then the next ones have more to do.
    for (int i = 0; i < kills; ++i) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        done = session(world, attempts + 1, 1'000'000, std::chrono::milliseconds(1 + (seed >> 33U) % 400)) ? done + 1
                                                                                                           : done;
        if (std::filesystem::exists(world.folder / "journal.jsonl")) {
            const State now = ok(load_state(world.folder));
            attempts = now.begun() ? static_cast<int>(now.spent.attempts) : 0;
        }
    }
    CHECK(session(world, attempts + 1, 1'000'000, {}));
    check_whole(world, attempts + 1);
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

// An evolve run when nodes, services and disks fail: no candidate is blamed for it.

namespace {

Launch lost_node() {
    Launch lost;
    lost.infra = true;
    lost.reason = "node lost";
    return lost;
}

// A build always succeeds here; what is to be lost is asked for each launch.
LaunchInstead losing(std::function<bool(const std::string& stage)> is_lost) {
    return [is_lost = std::move(is_lost)](LaunchKind kind, const std::filesystem::path& log) -> std::optional<Launch> {
        if (is_lost(log.parent_path().filename().string() + "/" + log.stem().string())) return lost_node();
        if (kind != LaunchKind::build) return std::nullopt;
        Launch built;
        built.ok = true;
        return built;
    };
}

std::map<int, std::string> verdicts_of(const State& state) {
    std::map<int, std::string> out;
    for (const Attempt& one : state.attempts) out[one.number] = to_text(one.verdict);
    return out;
}

}  // namespace

TEST_CASE("evolve run: what is lost once at each stage is done again, and no candidate is blamed") {
    constexpr int k_attempts = 4;
    EvolveWorld whole, world;
    whole.launch_instead = losing([](const std::string&) { return false; });
    CHECK(whole.run(k_attempts).rc == 0);
    std::set<std::string> seen;
    world.launch_instead = losing([&seen](const std::string& stage) { return seen.insert(stage).second; });
    CHECK(world.run(k_attempts).rc == 0);
    CHECK(verdicts_of(world.state) == verdicts_of(whole.state));
    CHECK(world.choices() == whole.choices());
    CHECK(world.state.spent.attempts == k_attempts);
    std::set<std::string> stages;
    CHECK(each_record(world.folder, [&](const Json& record, std::size_t) -> Status {
        if (record["type"] == "infra_error") stages.insert(record["stage"]);
        if (record["type"] == "verdict") CHECK(record.dump().find("node lost") == std::string::npos);
        return {};
    }));
    CHECK(stages ==
          std::set<std::string>{"noise", "build", "test", "oracle", "anticheat", "bench", "target", "recheck"});
    // No model is told.
    for (int n = 1; n <= k_attempts; ++n) {
        CHECK(test::read_text(world.folder / attempt_folder(n) / "prompt.md").find("node lost") == std::string::npos);
    }
}

TEST_CASE("evolve run: after three losses in a row it looks once a minute, gives up, and goes on later") {
    EvolveWorld whole, world;
    CHECK(whole.run(3).rc == 0);
    bool down = true;
    world.launch_instead = losing([&down](const std::string& stage) { return down && stage.ends_with("stage-bench"); });
    world.change = [](DriverSettings& settings) { settings.infra_max_wait = std::chrono::minutes(4); };
    const DriverEnd end = world.run(3);
    CHECK(end.reason == "infrastructure");
    CHECK(end.rc == 4);
    const auto waits = world.clock.sleeps();
    CHECK(std::count(waits.begin(), waits.end(), std::chrono::minutes(1)) == 3);
    CHECK(std::count(waits.begin(), waits.end(), std::chrono::seconds(1)) == 1);
    REQUIRE(world.state.open.number != 0);
    CHECK(world.state.spent.attempts == world.state.open.number - 1);
    down = false;
    world.launch_instead = {};
    CHECK(world.run(3).rc == 0);
    CHECK(verdicts_of(world.state) == verdicts_of(whole.state));
    CHECK(world.choices() == whole.choices());
}

TEST_CASE("evolve run: an agent service that is down costs no attempt, and a login that is gone ends it") {
    EvolveWorld world;
    int calls = 0;
    world.run_instead = [&calls](const AgentRequest&) -> std::optional<AgentOutcome> {
        if (++calls > 3) return std::nullopt;
        AgentOutcome down;
        down.kind = AgentClass::overloaded;
        down.exit_status = 1;
        return down;
    };
    world.run(1);
    CHECK(verdicts_of(world.state) ==
          std::map<int, std::string>{
              {0, "kept"}, {1, "infra"}, {2, "infra"}, {3, "infra"}, {4, verdicts_of(world.state)[4]}});
    CHECK(world.state.spent.attempts == 1);
    world.run_instead = [](const AgentRequest&) -> std::optional<AgentOutcome> {
        AgentOutcome out;
        out.kind = AgentClass::authentication;
        out.exit_status = 1;
        out.reason = "401 Unauthorized";
        out.stop_reason = "codex-auth";
        return out;
    };
    const DriverEnd end = world.run(3);
    CHECK(end.reason == "codex-auth");
    CHECK(end.rc == 1);
    CHECK(world.state.spent.attempts == 1);
    world.run_instead = {};
    CHECK(world.run(2).reason == "max-attempts");
    check_draws(world);
}

TEST_CASE("evolve run: waits for the provider as long as it asks, and costs no attempt") {
    EvolveWorld world;
    int calls = 0;
    const auto reset = world.clock.wall() + std::chrono::hours(3);
    world.run_instead = [&](const AgentRequest&) -> std::optional<AgentOutcome> {
        if (++calls > 3) return std::nullopt;
        AgentOutcome limit;
        limit.kind = AgentClass::usage_limit;
        limit.action = AgentAction::wait_until;
        limit.exit_status = 1;
        if (calls == 2) limit.not_before = reset;
        if (calls == 3) limit.not_before = reset - std::chrono::hours(2);  // has passed
        if (calls == 3) CHECK(world.clock.wall() >= reset);
        return limit;
    };
    const auto begun = world.clock.wall();
    CHECK(world.run(1).rc != 4);
    CHECK(world.state.spent.attempts == 1);
    CHECK(calls == 4);
    // 15 min, until the reset, 1 h
    CHECK(world.clock.wall() - begun >= std::chrono::hours(4));

    EvolveWorld far;
    far.run_instead = [&](const AgentRequest&) -> std::optional<AgentOutcome> {
        AgentOutcome limit;
        limit.kind = AgentClass::usage_limit;
        limit.action = AgentAction::wait_until;
        limit.not_before = far.clock.wall() + std::chrono::hours(70);
        return limit;
    };
    const DriverEnd end = far.run(3);
    CHECK(end.reason == "infrastructure");
    CHECK(end.rc == 4);
    CHECK(far.state.attempts.size() == 2);
}

TEST_CASE("evolve run: an agent that always fails in the same way ends it, one that varies is started slowly") {
    for (const bool varies : {false, true}) {
        EvolveWorld world;
        int calls = 0;
        world.run_instead = [&](const AgentRequest&) -> std::optional<AgentOutcome> {
            AgentOutcome failed;
            failed.kind = AgentClass::failed;
            failed.exit_status = 1;
            failed.reason = std::string("exited with code 1: no luck ") + static_cast<char>(varies ? 'a' + calls : 'a');
            ++calls;
            return failed;
        };
        const auto begun = world.clock.monotonic();
        const DriverEnd end = world.run(12);
        const auto took = world.clock.monotonic() - begun;
        CHECK(end.reason == (varies ? "max-attempts" : "circuit-breaker"));
        CHECK(calls == (varies ? 12 : 5));
        CHECK(took >= std::chrono::minutes(varies ? 3 : 1));
    }
}

TEST_CASE("evolve run: a budget that ends in an evaluation finishes it, and leaves the reserve") {
    EvolveWorld world;
    // A launch takes a tenth of a second of the device: 18 for the noise, at least 7 for a candidate that is measured.
    world.change = [](DriverSettings& settings) {
        settings.budget.device_s = 5;
        settings.budget.reserve = .5;
    };
    CHECK(world.run(50).reason == "max-device-seconds");
    CHECK(world.state.spent.device_s >= 2.5);
    // The last verification is what the reserve is for.
    const Json verified = Json::parse(world.state.verified);
    CHECK(verified["pass"] == true);
    CHECK(world.state.spent.device_s - verified["device_s"].get<double>() < 5);
    CHECK(world.state.open.number == 0);
    for (const Attempt& one : world.state.attempts) CHECK(one.verdict != Verdict::none);
    const auto records = world.state.records;
    CHECK(world.run(50).reason == "max-device-seconds");
    CHECK(world.state.records == records);
}

TEST_CASE("evolve run: it ends when the best is near what is physically possible") {
    EvolveWorld world;
    double of_base = .5;
    const LaunchInstead near = [&of_base](LaunchKind kind, const std::filesystem::path& log) -> std::optional<Launch> {
        if (kind != LaunchKind::profile) return std::nullopt;
        Launch out;
        out.ok = true;
        out.value = 100;
        out.roofline = log.parent_path().filename() == "attempt-0000" ? of_base : .96;
        return out;
    };
    // Nothing is gained, so that the base stays the best, which is far from it.
    world.launch_instead = near;
    CHECK(world.run(2).reason == "max-attempts");
    of_base = .96;
    EvolveWorld done;
    done.launch_instead = near;
    const DriverEnd end = done.run(2);
    CHECK(end.reason == "roofline");
    CHECK(end.rc == 3);
    CHECK(end.attempt == 0);
}

// Each of the first steps meets a full disk once.
TEST_CASE("evolve run: a disk that is full before or after a step") {
    EvolveWorld world;
    int asks = 0, full_at = 0, sessions = 0;
    world.room = [&]() -> Status {
        return ++asks == full_at ? fail(ErrorKind::local_io, "No space left on device") : Status();
    };
    world.launch_instead = losing([](const std::string&) { return false; });
    for (full_at = 1; full_at <= 12; ++full_at) {
        asks = 0;
        const DriverEnd end = world.run(3);
        if (end.reason == "max-attempts") break;
        ++sessions;
        CHECK(end.reason == "local-io");
        CHECK(end.rc == 8);
    }
    CHECK(sessions > 5);
    full_at = 0;
    CHECK(world.run(3).reason == "max-attempts");
    check_whole(world, 3);
    for (const auto& [number, verdict] : verdicts_of(world.state)) CHECK(verdict != "none");
}

}  // namespace gdnctl::loop::evolve
