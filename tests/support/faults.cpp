#include "support/faults.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>

#include <doctest/doctest.h>
#include <grp.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gdnctl::test {

FileSizeLimit::FileSizeLimit(std::size_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &m_before) == 0);
    const rlimit lower{bytes, m_before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &lower) == 0);
}

FileSizeLimit::~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &m_before); }

namespace {

struct Forked {
    pid_t pid = 0;
    int output = -1;
};

Forked fork_with_output(const std::function<int()>& body) {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    std::cout.flush();  // otherwise the child writes it again
    std::fflush(nullptr);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        _exit(body());
    }
    close(ends[1]);
    return {pid, ends[0]};
}

std::string read_to_end(int fd) {
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t n = 0; (n = read(fd, piece.data(), piece.size())) > 0 || (n < 0 && errno == EINTR);) {
        if (n > 0) text.append(piece.data(), static_cast<std::size_t>(n));
    }
    close(fd);
    return text;
}

// Lets the traced child run up to its `step`-th system call (entry and exit each count). True: it ended before that.
bool run_steps(pid_t child, int step) {
    int status = 0;
    for (int i = 0; i <= step; ++i) {
        if (waitpid(child, &status, 0) != child || WIFEXITED(status) || WIFSIGNALED(status)) return true;
        if (i < step && ptrace(PTRACE_SYSCALL, child, 0, 0) != 0) return true;
    }
    return false;
}

}  // namespace

ChildEnd in_child(const std::function<int()>& body) {
    const Forked child = fork_with_output(body);
    ChildEnd end;
    end.output = read_to_end(child.output);
    int status = 0;
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    end.exit_code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    return end;
}

ChildEnd as_nobody(const std::function<int()>& body) {
    return in_child([&] {
        constexpr unsigned k_nobody = 65534;
        if (geteuid() == 0 && (setgroups(0, nullptr) != 0 || setgid(k_nobody) != 0 || setuid(k_nobody) != 0)) {
            return 99;
        }
        return body();
    });
}

int kill_at_each_step(const std::function<void()>& body, const std::function<void(std::string_view)>& after) {
    constexpr int k_most_steps = 5000;
    for (int step = 0; step < k_most_steps; ++step) {
        const Forked child = fork_with_output([&] {
            if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return 0;
            std::raise(SIGSTOP);
            body();
            return 0;
        });
        const bool finished = run_steps(child.pid, step);
        if (!finished) {
            kill(child.pid, SIGKILL);
            waitpid(child.pid, nullptr, 0);
        }
        after(read_to_end(child.output));
        if (finished) return step;
    }
    FAIL("the body never came to its end");
    return 0;
}

}  // namespace gdnctl::test
