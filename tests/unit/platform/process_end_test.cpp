// How runs end: limits, stop requests, and what is left behind.
#include <csignal>
#include <future>
#include <thread>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/process.h"
#include "support/fake_clock.h"
#include "support/faults.h"
#include "support/temp_dir.h"
#include "unit/platform/process_support.h"

using namespace gdnctl;
using namespace gdnctl::test;
using namespace std::chrono_literals;
using End = ProcessResult::End;

TEST_CASE("process: wall limit ends it with TERM") {
    auto spec = shell("trap 'echo bye; exit 7' TERM; echo ready; sleep 1000 & wait");
    spec.wall_limit = 200ms;
    const auto result = must_run(spec);
    CHECK(result.end == End::wall_limit);
    CHECK(describe_end(result, spec) == "ran longer than 200 ms");
}

TEST_CASE("process: KILL follows where TERM is not heard") {
    auto spec = helper("ignores_term");
    std::stop_source stop;
    spec.stop = stop.get_token();
    spec.grace = 50ms;
    spec.on_stdout_line = [&](std::string_view) { stop.request_stop(); };
    const auto result = must_run(spec);
    CHECK(result.end == End::stopped);
    CHECK(result.exit_code == -SIGKILL);
}

TEST_CASE("process: a stopped child is ended too") {
    auto spec = shell("kill -STOP $$");
    spec.wall_limit = 100ms;
    const auto result = must_run(spec);
    CHECK(result.end == End::wall_limit);
    CHECK(result.exit_code == -SIGTERM);
}

TEST_CASE("process: idle limit counts from the last output") {
    FakeClock clock;
    auto spec = shell("echo a; echo b; exec sleep 1000");
    spec.idle_limit = 1h;
    std::vector<std::string> lines;
    // Each line comes shortly before the limit; then nothing comes any more.
    spec.on_stdout_line = [&](std::string_view line) {
        lines.emplace_back(line);
        clock.advance(lines.size() == 2 ? 1h : 59min);
    };
    const auto result = make_process(clock)->run(spec);
    REQUIRE(result);
    CHECK(result->end == End::idle_limit);
    CHECK(lines == std::vector<std::string>{"a", "b"});
}

TEST_CASE("process: output to a file counts against the idle limit") {
    // Eight seconds pass between two looks at the clock, which is just within the idle limit as long as the file grows.
    class GrowingClock final : public Clock {
    public:
        explicit GrowingClock(std::filesystem::path file) : m_file(std::move(file)) {}
        WallTime wall() const override { return {}; }
        Monotonic monotonic() const override {
            m_text += 'x';
            if (!m_file.empty()) write_text(m_file, m_text);
            return Monotonic(8s * m_text.size());
        }
        bool sleep_for(std::chrono::milliseconds, std::stop_token) override { return true; }

    private:
        std::filesystem::path m_file;
        mutable std::string m_text;
    };
    const TempDir dir;
    auto spec = shell("exec sleep 1000");
    spec.stdout_file = dir / "out";
    spec.idle_limit = 8200ms;
    spec.wall_limit = 400s;
    GrowingClock busy(spec.stdout_file);
    const auto limited = make_process(busy)->run(spec);
    REQUIRE(limited);
    CHECK(limited->end == End::wall_limit);
    GrowingClock quiet("");
    const auto idle = make_process(quiet)->run(spec);
    REQUIRE(idle);
    CHECK(idle->end == End::idle_limit);
}

TEST_CASE("process: limits do not follow jumps of the wall clock") {
    class JumpingClock final : public Clock {
    public:
        WallTime wall() const override { return WallTime(std::chrono::hours(++m_looks * 1000)); }
        Monotonic monotonic() const override { return system_clock().monotonic(); }
        bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) override {
            return system_clock().sleep_for(d, std::move(stop));
        }

    private:
        mutable int m_looks = 0;
    };
    JumpingClock clock;
    auto spec = shell("sleep 0.1");
    spec.wall_limit = 1h;
    spec.idle_limit = 1h;
    const auto result = make_process(clock)->run(spec);
    REQUIRE(result);
    CHECK(result->end == End::exited);
}

TEST_CASE("process: stop requested before the start runs nothing") {
    const TempDir dir;
    std::stop_source stop;
    stop.request_stop();
    auto spec = shell("touch ran");
    spec.cwd = dir.path();
    spec.stop = stop.get_token();
    CHECK(must_run(spec).end == End::stopped);
    CHECK(list_names(dir.path()).empty());
}

TEST_CASE("process: a grandchild that holds the pipe keeps nobody waiting") {
    const auto result = must_run(shell("sleep 1000 & echo $!"));
    CHECK(result.end == End::exited);
    CHECK(result.swept == 1);
    CHECK(is_gone(pid_in(result.out)));
}

TEST_CASE("process: a daemon that left group, session, parent and environment is swept") {
    auto spec = helper("leaves_daemon");
    const auto result = must_run(spec);
    CHECK(result.exit_code == 0);
    CHECK(result.swept == 1);
    REQUIRE(pid_in(result.out) > 1);
    CHECK(is_gone(pid_in(result.out)));

    spec = helper("leaves_daemon", {"deaf"});
    spec.grace = 50ms;
    const auto deaf = must_run(spec);
    CHECK(deaf.swept == 1);
    CHECK(is_gone(pid_in(deaf.out)));
}

TEST_CASE("process: who left everything and carries a mark of its own lives on") {
    // Its process id comes when it is on its own; only then the program that started it ends.
    const auto result =
        must_run(shell("{ GDNCTL_PROCESS_MARK=on-its-own setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' & } | "
                       "{ read pid; echo $pid; }"));
    const pid_t independent = pid_in(result.out);
    REQUIRE(independent > 1);
    CHECK(result.swept == 0);
    CHECK_FALSE(is_gone(independent));
    CHECK(must_run(shell("sleep 1000 &")).swept == 1);
    CHECK_FALSE(is_gone(independent));
    kill(independent, SIGKILL);
    waitpid(independent, nullptr, 0);
}

TEST_CASE("process: a limit takes the daemon along") {
    auto spec = shell(std::string(GDNCTL_TEST_BIN) + "/leaves_daemon; exec sleep 1000");
    std::stop_source stop;
    spec.stop = stop.get_token();
    pid_t daemon = 0;
    spec.on_stdout_line = [&](std::string_view line) {
        daemon = pid_in(line);
        stop.request_stop();
    };
    CHECK(must_run(spec).end == End::stopped);
    REQUIRE(daemon > 1);
    CHECK(is_gone(daemon));
}

TEST_CASE("process: children of others are left alone") {
    const pid_t other = fork();
    REQUIRE(other >= 0);
    if (other == 0) {
        pause();
        _exit(0);
    }
    keep_from_sweeps(other);
    CHECK(must_run(shell("sleep 1000 & echo $!")).swept == 1);
    CHECK_FALSE(is_gone(other));
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
}

TEST_CASE("process: the child dies with us, even when we are killed") {
    const ChildEnd end = in_child([] {
        auto spec = shell("echo $$ >&2; exec sleep 1000");
        spec.on_stderr_line = [](std::string_view line) {
            const std::string text = std::string(line) + "\n";
            if (write(1, text.data(), text.size()) > 0) kill(getpid(), SIGKILL);
        };
        (void)system_process().run(spec);
        return 0;
    });
    CHECK(end.exit_code == -SIGKILL);
    const pid_t child = pid_in(end.output);
    REQUIRE(child > 1);
    // PR_SET_PDEATHSIG is sent when we die; the death itself takes its moment.
    for (int i = 0; i < 500 && !is_gone(child); ++i) system_clock().sleep_for(10ms, {});
    CHECK(is_gone(child));
}

TEST_CASE("process: signals that we ignore are not ignored in the child") {
    CHECK(must_run(shell("kill -PIPE $$; echo survived")).end == End::signalled);
}

TEST_CASE("process: on_start gives the id of the group") {
    pid_t started = 0;
    auto spec = shell("echo $$");
    spec.on_start = [&](pid_t pid) { started = pid; };
    CHECK(pid_in(must_run(spec).out) == started);
}

TEST_CASE("process: runs in several threads do not end each other's daemons") {
    std::vector<std::future<ProcessResult>> runs;
    for (int i = 0; i < 4; ++i) {
        runs.push_back(std::async(std::launch::async, [i] {
            auto spec = shell("sleep 1000 & echo $!; setsid sleep 1000 & echo $!; sleep 0." + std::to_string(i));
            return system_process().run(spec).value();
        }));
    }
    for (auto& run : runs) {
        const auto result = run.get();
        CHECK(result.exit_code == 0);
        for (const auto line : text::split(text::trim(result.out), '\n')) CHECK(is_gone(pid_in(line)));
    }
}

TEST_CASE("process: a stop request from another of the threads ends it") {
    std::stop_source stop;
    auto spec = shell("echo ready; exec sleep 1000");
    spec.stop = stop.get_token();
    std::promise<void> ready;
    spec.on_stdout_line = [&](std::string_view) { ready.set_value(); };
    std::jthread stopper([&] {
        ready.get_future().wait();
        stop.request_stop();
    });
    CHECK(must_run(spec).end == End::stopped);
}
