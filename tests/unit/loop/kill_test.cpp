// kill -9 at random instants of a run with real git, again and again until it ends; then everything is as after an
// undisturbed run.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "loop/engine/journal.h"
#include "loop/engine/resume.h"
#include "loop_world.h"
#include "platform/descendants.h"
#include "platform/lock.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

namespace {

using Type = RecordType;
using Kind = StepKind;
constexpr int k_iterations = 3;
// Of this process, because these tests run beside each other and each ends whatever carries its mark.
const std::string& mark() {
    static const std::string k_mark = "loop-kill-test-" + std::to_string(getpid());
    return k_mark;
}
constexpr WallTime k_killed_at{std::chrono::milliseconds(1'773'161'587'000)};

// The smallest loop there can be on top of journal and transactions: a scripted agent commits in every iteration, the
// second one is rejected. Each step is what a real engine does, in the same order.
class Driver {
public:
    Driver(const LoopWorld& world, Isolation isolation)
        : m_world(world),
          m_stashes(isolation == Isolation::inplace),
          m_files(ok(Artefacts::open(world.log_dir()))),
          m_journal(ok(LoopJournal::open(world.log_dir() / "journal.jsonl"))),
          m_git(world.transactions(isolation, !m_journal.records().empty())) {
        // The kill may have come between a record and the file that is derived from it.
        if (!m_journal.records().empty()) write_state_file();
    }

    void run() {
        bool interrupted = true;
        for (;;) {
            const Step step = next_step(m_journal.records(), k_iterations, m_stashes, interrupted);
            interrupted = false;
            if (step.kind == Kind::finished) return;
            take(step);
        }
    }

private:
    void add(Type type, int iteration, std::map<std::string, std::string> text = {},
             std::map<std::string, std::int64_t> number = {}) {
        ok(m_journal.append({type, iteration, std::move(text), std::move(number)}, k_killed_at));
        write_state_file();
    }
    void write_state_file() const {
        ok(write_state(m_files.folder() / "state.json", summarise(m_journal.records(), k_iterations, m_stashes)));
    }
    const std::string& fact(Type type, const char* key) const {
        return last_of(open_iteration(m_journal.records()), type)->word(key);
    }
    Base base() const { return {fact(Type::base, "sha"), fact(Type::base, "branch")}; }

    void agent(int i, int attempt) {
        add(Type::attempt, i, {}, {{"attempt", attempt}});
        const fs::path tree = m_git.workdir();
        write_text(tree / "kernel.c", "int speed = " + std::to_string(i + 1) + ";\n");
        m_world.sh("git commit -q -am 'iteration " + std::to_string(i) + "'", tree);
        write_text(tree / ("part" + std::to_string(i) + ".c"), "int part;\n");
        m_world.sh("git add -A . && git commit -q -m 'part " + std::to_string(i) + "'", tree);
        if (!m_stashes) write_text(tree / "scratch.txt", "left over\n");
        add(Type::attempt_end, i, {{"class", "ok"}, {"next", "collect"}}, {{"attempt", attempt}});
    }

    void tree_steps(const Step& step) {
        const int i = step.iteration;
        if (step.kind == Kind::set_aside) {
            const std::string message = "gdnctl-codex-loop-iter-" + std::to_string(i);
            if (!step.again) add(Type::stash_intent, i, {{"message", message}});
            const auto stash = ok(m_git.set_aside(i, message, step.again));
            add(Type::stashed, i, {{"commit", stash.value_or("")}});
        } else if (step.kind == Kind::take_base) {
            const Base made = ok(m_git.begin(i, step.again));
            add(Type::base, i, {{"sha", made.sha}, {"branch", made.branch}});
        } else if (step.kind == Kind::put_away) {
            ok(m_git.put_away(i, step.attempt, base()));
            // In place a retry works on what is there; the scripted agent wants it as it was.
            if (m_stashes) m_world.sh("git reset -q --hard " + base().sha + " && git clean -qfd");
            agent(i, step.attempt + 1);
        } else {
            agent(i, step.attempt);
        }
    }

    void settle(const Step& step) {
        const int i = step.iteration;
        if (!step.again) add(Type::settle_intent, i);
        const Candidate candidate = ok(m_git.recall(i, base()));
        if (fact(Type::decision, "verdict") == "keep") {
            const auto landing = ok(m_git.accept(base(), candidate, step.again));
            CHECK(landing.kind != GitLanding::Kind::moved);
            CHECK(landing.kind != GitLanding::Kind::blocked);
        } else {
            ok(m_git.reject(base(), candidate));
        }
        add(Type::settled, i, {{"result", "done"}});
    }

    void write_log(const Step& step) {
        const int i = step.iteration;
        if (!step.again) add(Type::log_intent, i);
        const std::string entry = "entry " + std::to_string(i) + "\n";
        std::string log = m_world.sh("git show refs/heads/main:log.md") + "\n";
        const bool written = log.ends_with(entry);
        if (!written) log += entry;
        const auto logged =
            ok(m_git.commit_log(i, base().branch, {{{"log.md", log}}, "Log " + std::to_string(i) + "\n"}, step.again));
        CHECK((logged.kind == GitLanding::Kind::landed || logged.kind == GitLanding::Kind::already));
        add(Type::logged, i, {{"commit", logged.tip}});
    }

    void take(const Step& step) {
        const int i = step.iteration;
        switch (step.kind) {
            case Kind::start_run: add(Type::run, 0, {{"run", "r1"}}); break;
            case Kind::begin_iteration: add(Type::iteration, i); break;
            case Kind::collect: {
                const Candidate candidate = ok(m_git.collect(i, base()));
                CHECK(candidate.commits.size() == 2);
                add(Type::candidate, i, {{"head", candidate.head}});
                break;
            }
            case Kind::judge: add(Type::decision, i, {{"verdict", i == 2 ? "reject" : "keep"}}); break;
            case Kind::settle: settle(step); break;
            case Kind::write_log: write_log(step); break;
            case Kind::restore_stash: {
                const GitRestore back = ok(m_git.bring_back(fact(Type::stashed, "commit")));
                CHECK((back == GitRestore::restored || back == GitRestore::was_there));
                add(Type::restored, i);
                break;
            }
            case Kind::end_iteration:
                add(Type::iteration_end, i, {{"outcome", i == 2 ? "rejected" : "accepted"}});
                break;
            case Kind::finished: break;
            default: tree_steps(step); break;
        }
    }

    const LoopWorld& m_world;
    bool m_stashes;
    Artefacts m_files;
    LoopJournal m_journal;
    Transactions m_git;
};

// Runs the driver in a child, which is killed after `limit`; whether it came to its end.
bool run_for(const LoopWorld& world, Isolation isolation, std::chrono::microseconds limit) {
    const std::string& own = mark();
    const pid_t child = fork();
    if (child == 0) {
        setenv(std::string(k_process_mark).c_str(), own.c_str(), 1);
        int status = 1;
        try {
            Driver(world, isolation).run();
            status = 0;
        } catch (...) {  // doctest's REQUIRE and FAIL
        }
        std::cout.flush();
        _exit(status);
    }
    const auto end = std::chrono::steady_clock::now() + limit;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() >= end) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            // As a resumed run does first of all: whoever carries the mark of the killed one is ended.
            const auto marked = [&] { return processes_with_mark(own, all_processes()); };
            REQUIRE(end_processes(marked, std::chrono::milliseconds(0), system_clock()).left == 0);
            // As LoopLock does: a child that has not executed its program yet has no mark, and shares the lock.
            const fs::path lock = world.log_dir() / "journal.jsonl.lock";
            if (fs::exists(lock)) ok(FileLock::acquire(lock, {std::chrono::seconds(30)}));
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
    return true;
}

void check_end(const LoopWorld& world, bool stashes) {
    CHECK(world.sh("git log --reverse --format=%s") ==
          "base\niteration 1\npart 1\nLog 1\nLog 2\niteration 3\npart 3\nLog 3");
    CHECK(world.read("kernel.c") == "int speed = 4;\n");
    CHECK(world.read("log.md") == "# Log\nentry 1\nentry 2\nentry 3\n");
    CHECK(world.sh("git show refs/gdnctl/r1/iter-002/head:kernel.c") == "int speed = 3;");
    CHECK(world.sh("git stash list").empty());
    CHECK(world.read("mine.txt") == "mine\n");
    CHECK(world.status() == "?? mine.txt");
    const auto records = ok(parse_records(read_text(world.log_dir() / "journal.jsonl"), "journal"));
    const RunState state = summarise(records, k_iterations, stashes);
    CHECK(state.outcomes == std::map<std::string, int>{{"accepted", 2}, {"rejected", 1}});
    CHECK(ok(read_state(world.log_dir() / "state.json")) == state);
    if (!stashes) CHECK(world.sh("git show refs/gdnctl/r1/iter-001/leftovers:scratch.txt") == "left over");
}

// GDNCTL_TEST_KILLS: how many instants (6 unless said; the command itself is killed in tests/cli).
int kills() {
    const char* words = std::getenv("GDNCTL_TEST_KILLS");
    return words == nullptr ? 6 : std::atoi(words);
}

void sweep(Isolation isolation, unsigned seed, int count) {
    const bool stashes = isolation == Isolation::inplace;
    std::chrono::microseconds whole{0};
    {
        const LoopWorld world;
        world.write("mine.txt", "mine\n");
        const auto start = std::chrono::steady_clock::now();
        REQUIRE(run_for(world, isolation, std::chrono::minutes(2)));
        whole = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
        check_end(world, stashes);
        // Killed after its last record: nothing is left to do but that file.
        fs::remove(world.log_dir() / "state.json");
        REQUIRE(run_for(world, isolation, std::chrono::minutes(2)));
        check_end(world, stashes);
    }
    std::mt19937 random(seed);
    int done = 0;
    while (done < count) {
        const LoopWorld world;
        world.write("mine.txt", "mine\n");
        // Several kills in one run: also of the run that mends what the first one left.
        std::uniform_int_distribution<std::int64_t> instant(1000, std::max<std::int64_t>(2000, whole.count() / 2));
        for (int n = 0; n < 5; ++n) {
            if (run_for(world, isolation, std::chrono::microseconds(instant(random)))) break;
            ++done;
        }
        REQUIRE(run_for(world, isolation, std::chrono::minutes(2)));
        check_end(world, stashes);
    }
}

}  // namespace

TEST_CASE("kill -9: at random instants of a run in a slot, the end is that of an undisturbed run") {
    sweep(Isolation::worktree, 6, (kills() + 1) / 2);
}

TEST_CASE("kill -9: at random instants of a run in place with a stash, the end is that of an undisturbed run") {
    sweep(Isolation::inplace, 7, kills() / 2);
}

}  // namespace gdnctl::loop
