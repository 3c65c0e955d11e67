// Each case happens in a forked child: handlers and tokens are for the whole process.
#include "platform/signals.h"

#include <csignal>
#include <thread>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/descendants.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "support/faults.h"
#include "support/scratch.h"

using namespace gdnctl;
using namespace std::chrono_literals;
using test::in_child;

namespace {

// doctest's own handlers are inherited by the children.
void plain_signals() {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
}

// What a program that is sent this signal while it waits ends with.
int code_after(int signal) {
    return in_child([signal] {
               plain_signals();
               const std::stop_token token = stop_on_signals();
               if (token.stop_requested() || received_signal()) return 1;
               raise(signal);
               if (system_clock().sleep_for(60s, token)) return 2;
               return static_cast<int>(exit_code_of(stopped_error().kind));
           })
        .exit_code;
}

}  // namespace

TEST_CASE("signals: INT, HUP and TERM stop the token and give their exit codes") {
    CHECK(code_after(SIGINT) == 130);
    CHECK(code_after(SIGHUP) == 130);
    CHECK(code_after(SIGTERM) == 143);
}

TEST_CASE("signals: the first one counts") {
    const auto end = in_child([] {
        plain_signals();
        const std::stop_token token = stop_on_signals();
        raise(SIGTERM);
        raise(SIGINT);  // the first SIGINT, but the second signal: at once
        return 0;
    });
    CHECK(end.exit_code == -SIGINT);
    const auto twice = in_child([] {
        plain_signals();
        (void)stop_on_signals();
        raise(SIGINT);
        raise(SIGTERM);
        return received_signal() == SIGINT ? 0 : 1;
    });
    CHECK(twice.exit_code == 0);
}

TEST_CASE("signals: a second SIGINT kills at once, and the children with us") {
    const auto end = in_child([] {
        plain_signals();
        ProcessSpec spec;
        // Hears neither TERM nor INT: only a kill ends it within the hour of grace.
        spec.argv = {"/bin/sh", "-c", "trap '' TERM INT; echo $$; while :; do sleep 1; done"};
        spec.stop = stop_on_signals();
        spec.grace = 1h;
        spec.on_stdout_line = [](std::string_view line) {
            const std::string text(line);
            if (write(1, text.data(), text.size()) < 0) return;
            raise(SIGINT);
            // Another one when the first is being obeyed.
            std::thread([] {
                system_clock().sleep_for(100ms, {});
                kill(getpid(), SIGINT);
            }).detach();
        };
        (void)system_process().run(spec);
        return 0;
    });
    CHECK(end.exit_code == -SIGINT);
    const pid_t child = std::atoi(end.output.c_str());
    REQUIRE(child > 1);
    for (int i = 0; i < 500; ++i) {
        const auto info = process_info(child);
        if (!info || info->dead()) break;
        system_clock().sleep_for(10ms, {});
    }
    const auto info = process_info(child);
    CHECK((!info || info->dead()));
}

TEST_CASE("signals: a second SIGTERM kills at once, but not the copy that a wrapper hands on") {
    const auto copy = in_child([] {
        plain_signals();
        (void)stop_on_signals();
        raise(SIGTERM);
        raise(SIGTERM);
        return 0;
    });
    CHECK(copy.exit_code == 0);
    const auto end = in_child([] {
        plain_signals();
        (void)stop_on_signals();
        raise(SIGTERM);
        system_clock().sleep_for(1100ms, {});
        raise(SIGTERM);
        return 0;
    });
    CHECK(end.exit_code == -SIGTERM);
}

TEST_CASE("signals: a child may ask for another signal than the kill when we die") {
    const test::Scratch scratch;
    const std::string file = (scratch / "released").string();
    const auto end = in_child([&] {
        plain_signals();
        ProcessSpec spec;
        spec.argv = {"/bin/sh", "-c", "trap 'echo it >" + file + "; exit' INT; echo up; while :; do sleep 0.05; done"};
        spec.death_signal = SIGINT;
        (void)stop_on_signals();
        spec.on_stdout_line = [](std::string_view) { raise(SIGKILL); };
        (void)system_process().run(spec);
        return 0;
    });
    CHECK(end.exit_code == -SIGKILL);
    for (int i = 0; i < 500 && !std::filesystem::exists(file); ++i) system_clock().sleep_for(10ms, {});
    CHECK(std::filesystem::exists(file));
}

TEST_CASE("signals: SIGINT while a child runs ends the child and its family") {
    const auto end = in_child([] {
        plain_signals();
        ProcessSpec spec;
        spec.argv = {"/bin/sh", "-c", "sleep 1000 & echo ready; wait"};
        spec.stop = stop_on_signals();
        spec.on_stdout_line = [](std::string_view) { raise(SIGINT); };
        const auto result = system_process().run(spec);
        if (!result || result->end != ProcessResult::End::stopped) return 1;
        return static_cast<int>(exit_code_of(stopped_error().kind));
    });
    CHECK(end.exit_code == 130);
}

TEST_CASE("signals: SIGINT ends the wait for input") {
    const auto end = in_child([] {
        plain_signals();
        (void)stop_on_signals();
        std::array<int, 2> ends{};
        if (pipe(ends.data()) != 0) return 1;
        const pid_t self = getpid();
        std::thread([self] {
            system_clock().sleep_for(100ms, {});
            kill(self, SIGINT);
        }).detach();
        // Nobody will ever write. Whichever thread the signal interrupts, the main one comes first.
        const auto result = read_descriptor(ends[0], "standard input");
        return !result && result.error().kind == ErrorKind::interrupted ? 0 : 2;
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("signals: what was ignored at the start stays ignored") {
    const auto end = in_child([] {
        plain_signals();
        std::signal(SIGHUP, SIG_IGN);
        const std::stop_token token = stop_on_signals();
        raise(SIGHUP);
        return received_signal() || token.stop_requested() ? 1 : 0;
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("signals: a broken pipe is an error, not a death") {
    const auto end = in_child([] {
        std::signal(SIGPIPE, SIG_DFL);
        (void)stop_on_signals();
        std::array<int, 2> ends{};
        if (pipe(ends.data()) != 0) return 1;
        close(ends[0]);
        return write(ends[1], "x", 1) < 0 && errno == EPIPE ? 0 : 2;
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("signals: the same token every time, a stop without a signal is an interruption") {
    const auto end = in_child([] { return stop_on_signals() == stop_on_signals() ? 0 : 1; });
    CHECK(end.exit_code == 0);
    CHECK(stopped_error().kind == ErrorKind::interrupted);
}
