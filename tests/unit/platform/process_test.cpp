// What the tests of child processes share.
#include "platform/process.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/descendants.h"
#include "support/fake_clock.h"
#include "support/faults.h"
#include "support/temp_dir.h"

namespace gdnctl::test {

namespace {

inline ProcessSpec shell(const std::string& script) {
    ProcessSpec spec;
    spec.argv = {"/bin/sh", "-c", script};
    return spec;
}

inline ProcessSpec helper(const std::string& name, std::vector<std::string> words = {}) {
    ProcessSpec spec;
    spec.argv = {std::string(GDNCTL_TEST_BIN) + "/" + name};
    spec.argv.insert(spec.argv.end(), words.begin(), words.end());
    return spec;
}

inline ProcessResult must_run(const ProcessSpec& spec) {
    auto result = system_process().run(spec);
    REQUIRE_MESSAGE(result, (result ? "" : result.error().text()));
    return *result;
}

inline Error must_fail(const ProcessSpec& spec) {
    auto result = system_process().run(spec);
    REQUIRE_FALSE(result);
    return result.error();
}

inline pid_t pid_in(std::string_view text) { return static_cast<pid_t>(text::parse_int(text::trim(text)).value_or(0)); }

inline bool is_gone(pid_t pid) {
    const auto info = process_info(pid);
    return !info || info->dead();
}

}  // namespace

}  // namespace gdnctl::test

using namespace gdnctl;
using namespace gdnctl::test;
using End = ProcessResult::End;

TEST_CASE("process: output, error output and exit code") {
    const auto result = must_run(shell("echo out; echo err >&2; exit 3"));
    CHECK(result.end == End::exited);
    CHECK(result.exit_code == 3);
    CHECK(result.out == "out\n");
    CHECK(result.err == "err\n");
    CHECK(result.swept == 0);
    CHECK_FALSE(result.ok());
}

TEST_CASE("process: exit code 255 and death by signal are results") {
    CHECK(must_run(shell("exit 255")).exit_code == 255);
    const auto killed = must_run(shell("kill -KILL $$"));
    CHECK(killed.end == End::signalled);
    CHECK(killed.exit_code == -SIGKILL);
    CHECK(describe_end(killed, {}) == "was killed by signal 9 (Killed)");
}

TEST_CASE("process: a limit on the size of files kills a program, or is an error of its writes") {
    const std::string writes = "kill -XFSZ $$; echo goes on";
    CHECK(must_run(shell(writes)).exit_code == -SIGXFSZ);
    auto spec = shell(writes);
    spec.survives_size_limit = true;
    CHECK(must_run(spec).out == "goes on\n");
}

TEST_CASE("process: lines come one by one, the last without newline too") {
    std::vector<std::string> lines;
    auto spec = shell("printf 'a\\n\\nb\\nlast'; echo err >&2");
    spec.on_stdout_line = [&](std::string_view line) { lines.emplace_back(line); };
    const auto result = must_run(spec);
    CHECK(lines == std::vector<std::string>{"a", "", "b", "last"});
    CHECK(result.out.empty());
    CHECK(result.err == "err\n");
}

TEST_CASE("process: bytes come as they are, the last line's missing newline too") {
    std::string out, err;
    auto spec = shell("printf 'a\\0\\n\\377'; printf no-end >&2");
    spec.on_stdout = [&](std::string_view bytes) { out += bytes; };
    spec.on_stderr = [&](std::string_view bytes) { err += bytes; };
    const auto result = must_run(spec);
    CHECK(out == std::string("a\0\n\377", 4));
    CHECK(err == "no-end");
    CHECK(result.out.empty());
    CHECK(result.err.empty());
}

TEST_CASE("process: stderr merged into stdout keeps the order") {
    auto spec = shell("echo 1; echo 2 >&2; echo 3");
    spec.merge_stderr = true;
    CHECK(must_run(spec).out == "1\n2\n3\n");
}

TEST_CASE("process: capture limit keeps the beginning and says so") {
    auto spec = helper("floods_both");
    spec.capture_limit = 1000;
    const auto result = must_run(spec);
    CHECK(result.out.size() == 1000);
    CHECK(result.out_truncated);
    CHECK(result.err_truncated);
    CHECK(result.ok());
}

TEST_CASE("process: a megabyte on both pipes does not block") {
    const auto result = must_run(helper("floods_both"));
    CHECK(result.ok());
    CHECK(result.out.size() == std::size_t{1} << 20);
    CHECK(result.err.size() == std::size_t{1} << 20);
    CHECK_FALSE(result.out_truncated);
}

TEST_CASE("process: an endless line is cut at the capture limit") {
    std::size_t longest = 0;
    auto spec = helper("floods_both");
    spec.capture_limit = 100;
    spec.on_stdout_line = [&](std::string_view line) { longest = std::max(longest, line.size()); };
    CHECK(must_run(spec).out_truncated);
    CHECK(longest == 100);
}

TEST_CASE("process: stdin is fed while output is read") {
    ProcessSpec spec;
    spec.argv = {"cat"};
    spec.stdin_bytes = std::string(std::size_t{3} << 20, 'y');
    CHECK(must_run(spec).out == spec.stdin_bytes);
}

TEST_CASE("process: what comes through a descriptor follows, in its own time, and need not end") {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    const std::string much(std::size_t{3} << 20, 'z');
    std::thread writer([&] {
        for (std::size_t at = 0; at < much.size();) {
            const ssize_t n = write(ends[1], much.data() + at, much.size() - at);
            if (n <= 0) break;
            at += static_cast<std::size_t>(n);
        }
        close(ends[1]);
    });
    ProcessSpec spec;
    spec.argv = {"cat"};
    spec.stdin_bytes = "first ";
    spec.stdin_fd = ends[0];
    CHECK(must_run(spec).out == "first " + much);
    writer.join();
    close(ends[0]);
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    spec.argv = {"head", "-c", "3"};
    spec.stdin_fd = ends[0];
    CHECK(must_run(spec).out == "fir");  // although the pipe stays open
    close(ends[0]);
    close(ends[1]);
}

TEST_CASE("process: without input stdin is empty") {
    ProcessSpec spec;
    spec.argv = {"cat"};
    CHECK(must_run(spec).out.empty());
}

TEST_CASE("process: a child that reads nothing or closes stdin early is fine") {
    ProcessSpec spec;
    spec.argv = {"true"};
    spec.stdin_bytes = std::string(std::size_t{3} << 20, 'y');
    CHECK(must_run(spec).ok());
    spec.argv = helper("closes_stdin").argv;
    const auto result = must_run(spec);
    CHECK(result.ok());
    CHECK(result.out == "y");
}

TEST_CASE("process: streams from and to files, which are appended to") {
    const TempDir dir;
    write_text(dir / "in", "text");
    write_text(dir / "out", "before ");
    auto spec = shell("cat; echo err >&2");
    spec.stdin_file = dir / "in";
    spec.stdout_file = dir / "out";
    spec.stderr_file = dir / "err";
    const auto result = must_run(spec);
    CHECK(result.out.empty());
    CHECK(read_text(dir / "out") == "before text");
    CHECK(read_text(dir / "err") == "err\n");
    struct stat facts{};
    REQUIRE(stat((dir / "err").c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777U) == 0600);
}

TEST_CASE("process: environment and working folder") {
    const TempDir dir;
    setenv("GDNCTL_TEST_GONE", "1", 1);
    auto spec = shell("pwd; echo \"$NAME ${GDNCTL_TEST_GONE-unset}\"");
    spec.cwd = dir.path();
    spec.env = {{"NAME", "a b"}, {"GDNCTL_TEST_GONE", std::nullopt}};
    CHECK(must_run(spec).out == dir.path().string() + "\na b unset\n");
    spec = shell("echo ${HOME-unset}");
    spec.clean_env = true;
    CHECK(must_run(spec).out == "unset\n");
    unsetenv("GDNCTL_TEST_GONE");
}

TEST_CASE("process: marks nest") {
    auto spec = shell("echo $GDNCTL_PROCESS_MARK");
    const std::string outer = must_run(spec).out;
    CHECK(outer.starts_with(fmt::format("{}-", getpid())));
    setenv("GDNCTL_PROCESS_MARK", "outer", 1);
    CHECK(must_run(spec).out.starts_with("outer:"));
    unsetenv("GDNCTL_PROCESS_MARK");
    CHECK(must_run(spec).out != outer);
}

TEST_CASE("process: a program of its own group or session") {
    const auto group = must_run(shell("ps -o pid=,pgid= -p $$"));
    const auto words = [](const std::string& line) {
        return text::shell_split(line).value_or(std::vector<std::string>{});
    };
    REQUIRE(words(group.out).size() == 2);
    CHECK(words(group.out)[0] == words(group.out)[1]);
    auto spec = shell("ps -o pid=,sid= -p $$");
    spec.new_session = true;
    const auto session = must_run(spec);
    CHECK(words(session.out)[0] == words(session.out)[1]);
}

TEST_CASE("process: what cannot be started is said with the reason") {
    const TempDir dir;
    ProcessSpec spec;
    CHECK(must_fail(spec).kind == ErrorKind::usage);

    spec.argv = {"no-such-program"};
    auto error = must_fail(spec);
    CHECK(error.kind == ErrorKind::local_io);
    CHECK(error.message == "cannot run 'no-such-program': not found in PATH");
    CHECK(error.hint == "install 'no-such-program', or add its folder to PATH");

    spec.argv = {(dir / "absent").string()};
    CHECK(must_fail(spec).message == fmt::format("cannot run '{}': No such file or directory", spec.argv[0]));

    write_text(dir / "plain", "#!/bin/sh\n");
    spec.argv = {(dir / "plain").string()};
    error = must_fail(spec);
    CHECK(error.message == fmt::format("cannot run '{}': Permission denied", spec.argv[0]));
    CHECK(error.hint == "make it executable: chmod +x " + spec.argv[0]);

    spec.argv = {"true"};
    spec.cwd = dir / "nowhere";
    CHECK(must_fail(spec).message ==
          fmt::format("cannot run 'true' in {}: No such file or directory", spec.cwd.string()));

    spec.cwd.clear();
    spec.stdout_file = dir / "nowhere" / "out";
    CHECK(must_fail(spec).message ==
          fmt::format("cannot write {}: No such file or directory", spec.stdout_file.string()));
}

TEST_CASE("process: PATH of the child decides, relative folders start at its working folder") {
    const TempDir dir;
    write_text(dir / "bin/tool", "#!/bin/sh\necho found\n");
    std::filesystem::permissions(dir / "bin/tool", std::filesystem::perms::owner_all);
    ProcessSpec spec;
    spec.argv = {"tool"};
    spec.cwd = dir.path();
    spec.env = {{"PATH", "/nowhere:bin"}};
    CHECK(must_run(spec).out == "found\n");
}

// How runs end: limits, stop requests, and what is left behind.
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

// What programs need that start sessions of their own: SIGINT first, a watch, strays, survivors by name.
using namespace gdnctl;
using namespace gdnctl::test;
using namespace std::chrono_literals;
using End = ProcessResult::End;

TEST_CASE("process: SIGINT comes first, and to the program alone") {
    auto spec = shell(
        "trap 'echo int; exit 3' INT; setsid sleep 1000 & until grep -q sleep /proc/$!/comm; do :; done; "
        "echo ready; while :; do sleep 0.02; done");
    std::stop_source stop;
    spec.stop = stop.get_token();
    spec.interrupt_grace = 20s;
    std::vector<std::string> lines;
    spec.on_stdout_line = [&](std::string_view line) {
        lines.emplace_back(line);
        stop.request_stop();
    };
    const auto result = must_run(spec);
    CHECK(result.end == End::stopped);
    CHECK(result.exit_code == 3);
    CHECK(lines == std::vector<std::string>{"ready", "int"});
    REQUIRE_FALSE(result.survivors.empty());
    CHECK(result.survivors.front().command == "sleep 1000");
    CHECK(is_gone(result.survivors.front().id.pid));
}

TEST_CASE("process: who ignores SIGINT gets TERM, who ignores both gets KILL") {
    for (const auto& [trap, signal] : {std::pair{"INT", SIGTERM}, {"INT TERM", SIGKILL}}) {
        auto spec = shell("trap '' " + std::string(trap) + "; echo ready; while :; do sleep 0.02; done");
        std::stop_source stop;
        spec.stop = stop.get_token();
        spec.interrupt_grace = 50ms;
        spec.grace = 50ms;
        spec.on_stdout_line = [&](std::string_view) { stop.request_stop(); };
        const auto result = must_run(spec);
        CHECK(result.end == End::stopped);
        CHECK(result.exit_code == -signal);
    }
}

TEST_CASE("process: the watch ends it") {
    auto spec = shell("exec sleep 1000");
    int looks = 0;
    spec.watch = [&] { return ++looks < 3; };
    const auto result = must_run(spec);
    CHECK(result.end == End::watch);
    CHECK(looks == 3);
    CHECK(describe_end(result, spec) == "was ended");
}

TEST_CASE("process: strays go to the run that takes them, and the one beside it stays whole") {
    std::promise<pid_t> child;
    std::stop_source stop;
    auto held = std::async(std::launch::async, [&] {
        auto spec = shell("setsid sleep 1000 & echo $!; wait");
        spec.stop = stop.get_token();
        spec.on_stdout_line = [&](std::string_view line) { child.set_value(pid_in(line)); };
        return system_process().run(spec).value();
    });
    const pid_t sibling = child.get_future().get();
    auto spec = helper("leaves_daemon");
    spec.takes_strays = true;
    const auto result = must_run(spec);
    CHECK(result.swept == 1);
    CHECK(is_gone(pid_in(result.out)));
    CHECK_FALSE(is_gone(sibling));
    stop.request_stop();
    CHECK(held.get().end == End::stopped);
    CHECK(is_gone(sibling));
}

TEST_CASE("process: what a program leaves may be left running") {
    auto spec = shell("setsid sleep 1000 >/dev/null 2>&1 & echo $!; echo last");
    std::vector<std::string> lines;
    spec.on_stdout_line = [&](std::string_view line) { lines.emplace_back(line); };
    std::size_t lines_when_asked = 0;
    spec.leaves_behind = [&](int code) {
        lines_when_asked = lines.size();
        return code == 0;
    };
    const auto result = must_run(spec);
    CHECK(lines_when_asked == 2);
    CHECK(result.swept == 0);
    REQUIRE(result.survivors.size() == 1);
    const pid_t left = result.survivors.front().id.pid;
    CHECK(left == pid_in(lines.front()));
    CHECK_FALSE(is_gone(left));
    kill(left, SIGKILL);
    waitpid(left, nullptr, 0);
}

TEST_CASE("process: found by an entry of its environment, with command and age") {
    auto spec = shell("exec sleep 1000");
    const std::string entry = "GDNCTL_LOOP_ID=test-" + std::to_string(getpid());
    spec.env["GDNCTL_LOOP_ID"] = entry.substr(entry.find('=') + 1);
    int looks = 0;
    std::vector<ProcessId> found;
    spec.watch = [&] {
        found = processes_with_entry(entry, all_processes());
        return found.empty() && ++looks < 100;
    };
    pid_t started = 0;
    spec.on_start = [&](pid_t pid) { started = pid; };
    must_run(spec);
    REQUIRE(found.size() == 1);
    CHECK(found.front().pid == started);
    CHECK(processes_with_entry(entry + "x", all_processes()).empty());
    const auto self = process_info(getpid());
    REQUIRE(self);
    CHECK(process_command(getpid()).find("unit") != std::string::npos);
    CHECK(process_age(self->id) < 1h);
    CHECK(process_command(1 << 22).empty());
}
