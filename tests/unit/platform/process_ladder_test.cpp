// What programs need that start sessions of their own: SIGINT first, a watch, strays, survivors by name.
#include <csignal>
#include <future>
#include <thread>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/process.h"
#include "unit/platform/process_support.h"

using namespace gdnctl;
using namespace gdnctl::test;
using namespace std::chrono_literals;
using End = ProcessResult::End;

TEST_CASE("process: SIGINT comes first, and to the program alone") {
    auto spec = shell("trap 'echo int; exit 3' INT; setsid sleep 1000 & echo ready; while :; do sleep 0.02; done");
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
    CHECK(result.survivors.front().command.ends_with("sleep 1000"));  // setsid may not have become it yet
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
    CHECK(process_command(getpid()).find("unit_platform") != std::string::npos);
    CHECK(process_age(self->id) < 1h);
    CHECK(process_command(1 << 22).empty());
}
