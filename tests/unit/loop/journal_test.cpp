// The journal, the state and what follows from them, cut at every byte.
#include "loop/engine/journal.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "loop_fixture.h"
#include "platform/descendants.h"
#include "platform/lock.h"
#include "support/faults.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

namespace {

using Type = RecordType;
using Kind = StepKind;
constexpr WallTime k_written_at{std::chrono::milliseconds(1'773'161'587'000)};
constexpr int k_total = 3;

// A run whose agent, stages and git are words: what each step records. The second iteration needs two attempts, the
// third one is rejected.
class ScriptedRun {
public:
    explicit ScriptedRun(std::vector<std::string> lines = {}) : m_lines(std::move(lines)) {
        std::string text;
        for (const auto& line : m_lines) text += line + "\n";
        m_records = ok(parse_records(text, "journal"));
    }
    // Steps until there is nothing left to do.
    void finish(bool interrupted) {
        for (int guard = 0; guard < 500; ++guard) {
            const Step step = next_step(m_records, k_total, true, interrupted);
            interrupted = false;
            if (step.kind == Kind::finished) return;
            take(step);
        }
        FAIL("it never ends");
    }
    std::string text() const {
        std::string all;
        for (const auto& line : m_lines) all += line + "\n";
        return all;
    }
    // Numbers and outcomes of the iterations that ended, with the agent's runs that counted.
    std::string result() const {
        std::string all;
        for (const auto& record : m_records) {
            if (record.type != Type::iteration_end) continue;
            all += std::to_string(record.iteration) + ":" + record.word("outcome") + " ";
        }
        return all;
    }
    const std::vector<Record>& records() const { return m_records; }

private:
    void add(Type type, int iteration, std::map<std::string, std::string> text = {},
             std::map<std::string, std::int64_t> number = {}) {
        Record record{
            type, iteration, std::move(text), std::move(number), m_records.size() + 1, "2026-03-10T16:53:07Z"};
        m_lines.push_back(ok(line_of(record, m_lines.empty() ? "" : m_lines.back())));
        m_records.push_back(std::move(record));
    }
    void attempt(int iteration, int number) {
        add(Type::attempt, iteration, {}, {{"attempt", number}});
        int ended = 0;
        for (const auto& record : open_iteration(m_records)) ended += record.type == Type::attempt_end ? 1 : 0;
        const bool retry = iteration == 2 && ended == 0;
        add(Type::attempt_end, iteration,
            {{"class", retry ? "agent-error" : "ok"}, {"next", retry ? "retry" : "collect"}},
            {{"attempt", number}, {"tokens", 10}});
    }
    void take(const Step& step) {
        const int i = step.iteration;
        const std::string verdict = i == 3 ? "reject" : "keep";
        switch (step.kind) {
            case Kind::start_run: add(Type::run, 0, {{"run", "r1"}, {"isolation", "inplace"}}); break;
            case Kind::begin_iteration: add(Type::iteration, i); break;
            case Kind::stash_user_work:
                if (!step.again) add(Type::stash_intent, i, {{"message", "m" + std::to_string(i)}});
                CHECK((!step.again || step.stash_message == "m" + std::to_string(i)));
                add(Type::stashed, i, {{"commit", i == 1 ? "" : "cafe"}});
                break;
            case Kind::pin_base: add(Type::base, i, {{"sha", "abc"}, {"branch", "refs/heads/main"}}); break;
            case Kind::archive_attempt: attempt(i, step.attempt + 1); break;
            case Kind::run_attempt: attempt(i, step.attempt); break;
            case Kind::collect: add(Type::candidate, i, {{"head", "def"}, {"diff", "change"}}); break;
            case Kind::judge:
                for (const char* name : {"lint", "oracle"}) {
                    const auto open = open_iteration(m_records);
                    const bool done = std::any_of(open.begin(), open.end(), [&](const Record& record) {
                        return record.type == Type::stage && record.word("name") == name;
                    });
                    if (!done) add(Type::stage, i, {{"name", name}, {"verdict", "pass"}});
                }
                add(Type::decision, i, {{"outcome", i == 3 ? "rejected" : "accepted"}, {"verdict", verdict}});
                break;
            case Kind::settle:
                if (!step.again) add(Type::settle_intent, i);
                add(Type::settled, i, {{"result", verdict}});
                break;
            case Kind::write_log:
                if (!step.again) add(Type::log_intent, i);
                add(Type::logged, i, {{"commit", "fee"}});
                break;
            case Kind::restore_stash: add(Type::restored, i, {{"result", "restored"}}); break;
            case Kind::end_iteration:
                add(Type::iteration_end, i,
                    {{"outcome", last_of(open_iteration(m_records), Type::decision)->word("outcome")}},
                    {{"counted", i == 3 ? 1 : 0}, {"promoted", i == 1 ? 1 : 0}});
                break;
            case Kind::finished: break;
        }
    }
    std::vector<std::string> m_lines;
    std::vector<Record> m_records;
};

std::vector<std::string> whole_lines(std::string_view text) { return parse_journal(text).records; }

}  // namespace

TEST_CASE("journal: cut at every byte, a run goes on to the same end, under the same numbers") {
    ScriptedRun undisturbed;
    undisturbed.finish(false);
    const std::string text = undisturbed.text();
    CHECK(undisturbed.result() == "1:accepted 2:accepted 3:rejected ");
    std::size_t last = 0;
    for (std::size_t bytes = 0; bytes <= text.size(); ++bytes) {
        auto lines = whole_lines(std::string_view(text).substr(0, bytes));
        CHECK(lines.size() >= last);
        if (lines.size() == last && bytes > 0) continue;  // the same records as one byte before
        last = lines.size();
        ScriptedRun resumed(std::move(lines));
        resumed.finish(true);
        INFO("cut after ", bytes, " bytes, ", last, " records");
        CHECK(resumed.result() == undisturbed.result());
        // A second kill at every record of the rest makes no difference either.
        auto rest = whole_lines(resumed.text());
        rest.resize(last + (rest.size() - last) / 2);
        ScriptedRun twice(std::move(rest));
        twice.finish(true);
        CHECK(twice.result() == undisturbed.result());
    }
    CHECK(last == undisturbed.records().size());
}

TEST_CASE(
    "journal: with a larger total a finished run goes on with the next number, with the same one there is nothing to "
    "do") {
    ScriptedRun run;
    run.finish(false);
    CHECK(next_step(run.records(), 3, true, true) == Step{Kind::finished});
    CHECK(next_step(run.records(), 2, true, true) == Step{Kind::finished});
    CHECK(next_step(run.records(), 4, true, true) == Step{Kind::begin_iteration, 4});
    CHECK(next_step({}, 3, false, true) == Step{Kind::start_run});
}

TEST_CASE("journal: steps inside an iteration") {
    const auto records = [](std::initializer_list<Record> list) {
        std::vector<Record> all = {{Type::run}, {Type::iteration, 1}};
        all.insert(all.end(), list);
        return all;
    };
    const Record base{Type::base, 1};
    const Record begun{Type::attempt, 1, {}, {{"attempt", 1}}};
    const auto ended = [](const char* next) {
        return Record{Type::attempt_end, 1, {{"next", next}}, {{"attempt", 1}}};
    };
    CHECK(next_step(records({}), 1, false, true) == Step{Kind::pin_base, 1, 0, true});
    CHECK(next_step(records({{Type::stash_intent, 1, {{"message", "m"}}}}), 1, true, false) ==
          Step{Kind::stash_user_work, 1, 0, true, "m"});
    CHECK(next_step(records({base}), 1, false, false) == Step{Kind::run_attempt, 1, 1});
    CHECK(next_step(records({base, begun}), 1, false, true) == Step{Kind::archive_attempt, 1, 1, true});
    CHECK(next_step(records({base, begun, ended("retry")}), 1, false, false) == Step{Kind::archive_attempt, 1, 1});
    CHECK(next_step(records({base, begun, ended("collect")}), 1, false, false) == Step{Kind::collect, 1, 1});
    const Record candidate{Type::candidate, 1};
    const Record decision{Type::decision, 1};
    CHECK(next_step(records({base, begun, ended("collect"), candidate, decision, {Type::settle_intent, 1}}), 1, false,
                    true) == Step{Kind::settle, 1, 0, true});
    CHECK(next_step(records({base, begun, ended("collect"), candidate, decision, {Type::settled, 1}}), 1, false,
                    true) == Step{Kind::write_log, 1, 0, false});
}

TEST_CASE("journal: an unknown version or type stops with 2, a changed or lost line with 7 and its number") {
    ScriptedRun run;
    run.finish(false);
    const std::string text = run.text();
    const auto kind_of = [](const std::string& changed) {
        const auto parsed = parse_records(changed, "journal.jsonl");
        REQUIRE_FALSE(parsed);
        INFO(parsed.error().message);
        CHECK(parsed.error().message.starts_with("journal.jsonl:"));
        return parsed.error().kind;
    };
    std::string newer = text;
    newer.replace(newer.find("\"v\":1"), 5, "\"v\":2");
    CHECK(kind_of(newer) == ErrorKind::config);
    std::string type = text;
    type.replace(type.find("\"type\":\"run\""), 12, "\"type\":\"fly\"");
    CHECK(kind_of(type) == ErrorKind::conflict);  // the next line knows that it was another one
    const std::string first = type.substr(0, type.find('\n'));
    CHECK(kind_of(first + "\n") == ErrorKind::config);
    CHECK(kind_of(first + "\n" + ok(line_of(run.records()[1], first)) + "\n") == ErrorKind::config);
    std::string edited = text;
    edited.replace(edited.find("inplace"), 7, "INPLACE");
    CHECK(kind_of(edited) == ErrorKind::conflict);
    const auto second = text.find('\n') + 1;
    CHECK(kind_of(text.substr(0, second) + text.substr(text.find('\n', second) + 1)) == ErrorKind::conflict);
    CHECK(kind_of("no json\n") == ErrorKind::conflict);
    CHECK(ok(parse_records("", "j")).empty());
    CHECK(ok(parse_records(text + "{\"v\":1,\"se", "j")).size() == run.records().size());
}

TEST_CASE("journal: is appended to and read back, also after a torn line") {
    const test::TempDir folder;
    const fs::path path = folder / "journal.jsonl";
    {
        auto journal = ok(LoopJournal::open(path));
        ok(journal.append({Type::run, 0, {{"run", "r\n1 \xff"}, {"type", "mine"}}, {{"total", 3}}}, k_written_at));
        ok(journal.append({Type::iteration, 1}, k_written_at));
        CHECK_FALSE(LoopJournal::open(path));
    }
    std::ofstream(path, std::ios::app) << "{\"v\":1,\"seq\":3,\"ty";
    auto again = ok(LoopJournal::open(path));
    CHECK(again.cut_off() == "{\"v\":1,\"seq\":3,\"ty");
    REQUIRE(again.records().size() == 2);
    CHECK(again.records()[0].count("total") == 3);
    CHECK(again.records()[0].time == "2026-03-10T16:53:07Z");
    ok(again.append({Type::base, 1, {{"sha", "abc"}}}, k_written_at));
    CHECK(ok(parse_records(read_text(path), "j")).size() == 3);
}

TEST_CASE("journal: on a full disk nothing of a record stays, and the next one fits") {
    const test::TempDir folder;
    const fs::path path = folder / "journal.jsonl";
    auto journal = ok(LoopJournal::open(path));
    ok(journal.append({Type::run}, k_written_at));
    const auto size = fs::file_size(path);
    {
        const test::FileSizeLimit limit(size + 20);
        const auto refused = journal.append({Type::iteration, 1}, k_written_at);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind == ErrorKind::local_io);
        CHECK(fs::file_size(path) == size);
    }
    ok(journal.append({Type::iteration, 1}, k_written_at));
    CHECK(ok(parse_records(read_text(path), "j")).size() == 2);
}

TEST_CASE("journal: one that an agent has removed is written again, one that was replaced is not touched") {
    const test::TempDir folder;
    const fs::path path = folder / "logs" / "journal.jsonl";
    fs::create_directory(folder / "logs");
    auto journal = ok(LoopJournal::open(path));
    ok(journal.append({Type::run, 0, {{"run", "r1"}}}, k_written_at));
    ok(journal.append({Type::iteration, 1}, k_written_at));
    fs::remove_all(folder / "logs");
    ok(journal.append({Type::base, 1, {{"sha", "abc"}}}, k_written_at));
    fs::remove(path);
    ok(journal.append({Type::attempt, 1}, k_written_at));
    const auto records = ok(parse_records(read_text(path), "j"));
    REQUIRE(records.size() == 4);
    CHECK(records == journal.records());
    fs::remove(path);
    write_text(path, "mine\n");
    const auto refused = journal.append({Type::attempt_end, 1}, k_written_at);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::conflict);
    CHECK(read_text(path) == "mine\n");
}

TEST_CASE("state: is derived, replaced as a whole with a backup, and read back") {
    const test::TempDir folder;
    const fs::path path = folder / "state.json";
    ScriptedRun run;
    run.finish(false);
    const RunState state = summarise(run.records(), 3, true);
    CHECK(state.ended == 3);
    CHECK(state.failures == 1);
    CHECK(state.promotions == 1);
    CHECK(state.since_promotion == 2);
    CHECK(state.tokens == 40);
    CHECK(state.next == "finished");
    CHECK(state.outcomes == std::map<std::string, int>{{"accepted", 2}, {"rejected", 1}});
    CHECK_FALSE(ok(read_state(path)));
    ok(write_state(path, RunState{}));
    ok(write_state(path, state));
    CHECK(ok(read_state(path)) == state);
    CHECK(ok(read_state(path.string() + ".bak")) == RunState{});
}

TEST_CASE("state: one that does not parse stops with 2 and is not touched (defect 15)") {
    const test::TempDir folder;
    const fs::path path = folder / "state.json";
    for (const char* text :
         {"", "{", "[]", "{\"schema\":\"gdnctl.loop-state/9\"}", "{\"schema\":\"gdnctl.loop-state/1\"}"}) {
        write_text(path, text);
        const auto refused = read_state(path);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind == ErrorKind::config);
        CHECK(refused.error().message.find("nothing was changed") != std::string::npos);
        CHECK(read_text(path) == text);
    }
    ok(write_state(path, RunState{}));
    const std::string before = read_text(path);
    {
        const test::FileSizeLimit limit(50);
        CHECK_FALSE(write_state(path, RunState{}));
    }
    CHECK(read_text(path) == before);
}

}  // namespace gdnctl::loop

// kill -9 at random instants of a run with real git, again and again until it ends; then everything is as after an
// undisturbed run.

namespace gdnctl::loop {

namespace {

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
    Driver(const LoopFixture& world, Isolation isolation)
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
        if (step.kind == Kind::stash_user_work) {
            const std::string message = "gdnctl-codex-loop-iter-" + std::to_string(i);
            if (!step.again) add(Type::stash_intent, i, {{"message", message}});
            const auto stash = ok(m_git.stash_user_work(i, message, step.again));
            add(Type::stashed, i, {{"commit", stash.value_or("")}});
        } else if (step.kind == Kind::pin_base) {
            const Base made = ok(m_git.begin(i, step.again));
            add(Type::base, i, {{"sha", made.sha}, {"branch", made.branch}});
        } else if (step.kind == Kind::archive_attempt) {
            ok(m_git.archive_attempt(i, step.attempt, base()));
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

    const LoopFixture& m_world;
    bool m_stashes;
    Artefacts m_files;
    LoopJournal m_journal;
    Transactions m_git;
};

// Runs the driver in a child, which is killed after `limit`; whether it came to its end.
bool run_for(const LoopFixture& world, Isolation isolation, std::chrono::microseconds limit) {
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

void check_end(const LoopFixture& world, bool stashes) {
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
        const LoopFixture world;
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
        const LoopFixture world;
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
