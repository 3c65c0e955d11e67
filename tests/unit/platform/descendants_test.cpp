#include "platform/descendants.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fake_clock.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using namespace std::chrono_literals;

namespace {

// A child that waits to be killed; reaped at the end.
class Sleeper {
public:
    explicit Sleeper(bool deaf = false) {
        // Before the fork, so that no signal can come in between; the test runner has a handler of its own.
        auto* const before = std::signal(SIGTERM, deaf ? SIG_IGN : SIG_DFL);
        m_pid = fork();
        if (m_pid == 0) {
            for (;;) pause();
        }
        std::signal(SIGTERM, before);
        REQUIRE(m_pid > 0);
    }
    ~Sleeper() {
        kill(m_pid, SIGKILL);
        waitpid(m_pid, nullptr, 0);
    }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    ProcessId id() const {
        const auto info = process_info(m_pid);
        REQUIRE(info);
        return info->id;
    }

private:
    pid_t m_pid = 0;
};

ProcessInfo entry(pid_t pid, pid_t parent, char state = 'S', pid_t session = 1) {
    return {{pid, 100}, parent, pid, session, state};
}

// Time passes for the world as well: the killed need a moment to die.
test::FakeClock& living_clock(test::FakeClock& clock) {
    clock.when_asleep([] { system_clock().sleep_for(2ms, {}); });
    return clock;
}

}  // namespace

TEST_CASE("descendants: /proc/PID/stat with brackets and blanks in the name") {
    const auto info = parse_process_stat(
        "4242 (a) b (c)) S 17 4242 4000 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1000 10 18446744073709551615\n");
    REQUIRE(info);
    CHECK(info->id == ProcessId{4242, 98765});
    CHECK(info->parent == 17);
    CHECK(info->group == 4242);
    CHECK(info->session == 4000);
    CHECK(info->state == 'S');
}

TEST_CASE("descendants: malformed /proc/PID/stat") {
    CHECK_FALSE(parse_process_stat(""));
    CHECK_FALSE(parse_process_stat("1 (a"));
    CHECK_FALSE(parse_process_stat("1 (a) S 1 2 3"));
    CHECK_FALSE(parse_process_stat("x (a) S 17 1 1 0 -1 1 1 0 0 0 0 0 0 0 20 0 1 0 98765 1"));
    CHECK_FALSE(parse_process_stat(") (a"));
}

TEST_CASE("descendants: family of a process, in whatever order it is listed") {
    const std::vector<ProcessInfo> table = {entry(30, 20),      entry(20, 10), entry(10, 1),
                                            entry(40, 30, 'Z'), entry(50, 1),  entry(60, 40)};
    CHECK(descendants_of(10, table) == std::vector<ProcessId>{{20, 100}, {30, 100}, {60, 100}});
    CHECK(descendants_of(60, table).empty());
}

TEST_CASE("descendants: members of a session") {
    const std::vector<ProcessInfo> table = {entry(10, 1, 'S', 10), entry(11, 10, 'R', 10), entry(12, 1, 'Z', 10),
                                            entry(13, 1, 'S', 13)};
    CHECK(members_of_session(10, table) == std::vector<ProcessId>{{10, 100}, {11, 100}});
}

TEST_CASE("descendants: this process is found, with its parent") {
    const auto self = process_info(getpid());
    REQUIRE(self);
    CHECK(self->parent == getppid());
    CHECK(is_running(self->id));
    CHECK_FALSE(is_running({getpid(), self->id.start_ticks + 1}));
    CHECK(boot_id().size() == 36);
    bool listed = false;
    for (const auto& process : all_processes()) listed = listed || process.id == self->id;
    CHECK(listed);
}

TEST_CASE("descendants: a mark is one word of several") {
    const std::string command = "GDNCTL_PROCESS_MARK=one:two exec sleep 1000";
    const pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
        _exit(127);
    }
    REQUIRE(pid > 0);
    for (int i = 0; i < 500 && process_mark(pid) != "one:two"; ++i) system_clock().sleep_for(10ms, {});
    CHECK(process_mark(pid) == "one:two");
    const auto table = all_processes();
    CHECK(processes_with_mark("two", table).size() == 1);
    CHECK(processes_with_mark("tw", table).empty());
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
}

TEST_CASE("descendants: a mark is seen while its process is inside exec, and no mark where there is no environment") {
    const test::TempDir folder;
    const auto again = folder.path() / "again";
    test::write_text(again, "#!/bin/sh\nexec \"$0\"\n");
    std::filesystem::permissions(again, std::filesystem::perms::owner_all);
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("GDNCTL_PROCESS_MARK", "restless", 1);
        execl(again.c_str(), again.c_str(), static_cast<char*>(nullptr));
        _exit(127);
    }
    REQUIRE(pid > 0);
    for (int i = 0; i < 500 && process_mark(pid) != "restless"; ++i) system_clock().sleep_for(10ms, {});
    int missed = 0;  // without waiting for the end of exec: about 30 of 1000
    for (int i = 0; i < 1000; ++i) missed += process_mark(pid) == "restless" ? 0 : 1;
    CHECK(missed == 0);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);

    const pid_t bare = fork();
    if (bare == 0) {
        execle("/bin/sleep", "sleep", "1000", static_cast<char*>(nullptr), static_cast<char**>(nullptr));
        _exit(127);
    }
    REQUIRE(bare > 0);
    for (int i = 0; i < 500 && process_command(bare) != "sleep 1000"; ++i) system_clock().sleep_for(10ms, {});
    CHECK(process_mark(bare).empty());
    kill(bare, SIGKILL);
    waitpid(bare, nullptr, 0);
}

TEST_CASE("descendants: a reused process id is spared") {
    const Sleeper sleeper;
    const ProcessId earlier{sleeper.id().pid, sleeper.id().start_ticks - 1};
    CHECK_FALSE(send_signal(earlier, SIGKILL));
    test::FakeClock clock;
    const auto report = end_processes([&] { return std::vector{earlier}; }, 1s, clock);
    CHECK(report.ended == 0);
    CHECK(report.left == 0);
    CHECK(is_running(sleeper.id()));
}

TEST_CASE("descendants: TERM is enough for most") {
    const Sleeper sleeper;
    const ProcessId id = sleeper.id();
    test::FakeClock clock;
    const auto report = end_processes([&] { return std::vector{id}; }, 1000s, living_clock(clock));
    CHECK(report.ended == 1);
    CHECK(report.left == 0);
    CHECK_FALSE(is_running(id));
}

TEST_CASE("descendants: KILL after the grace, and those that come meanwhile are ended too") {
    const Sleeper deaf(true);
    std::optional<Sleeper> late;
    const ProcessId first = deaf.id();
    test::FakeClock clock;
    const auto find = [&] {
        std::vector<ProcessId> ids = {first};
        if (clock.sleeps().size() == 2) late.emplace();
        if (late) ids.push_back(late->id());
        return ids;
    };
    const auto report = end_processes(find, 1s, living_clock(clock));
    CHECK(report.ended == 2);
    CHECK(report.left == 0);
    CHECK(clock.sleeps().size() > 50 - 1);  // a second of 20 ms looks before the KILL
    CHECK_FALSE(is_running(first));
}
