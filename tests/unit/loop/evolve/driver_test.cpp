// A whole evolve run on real git, with the scripted agent and the synthetic scorer.
#include <csignal>
#include <cstdlib>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "evolve_world.h"
#include "platform/lock.h"

namespace gdnctl::loop::evolve {

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

}  // namespace gdnctl::loop::evolve
