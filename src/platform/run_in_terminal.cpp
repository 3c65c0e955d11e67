#include "platform/run_in_terminal.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <spawn.h>
#include <sys/wait.h>

#include "platform/descendants.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace gdnctl {

namespace {

// Signals from the terminal go to the whole process group; this ignores them while it lives.
class IgnoreSignals {
public:
    IgnoreSignals() {
        struct sigaction ignore{};
        ignore.sa_handler = SIG_IGN;
        sigaction(SIGINT, &ignore, &m_interrupt);
        sigaction(SIGQUIT, &ignore, &m_quit);
    }
    IgnoreSignals(const IgnoreSignals&) = delete;
    IgnoreSignals& operator=(const IgnoreSignals&) = delete;
    ~IgnoreSignals() {
        sigaction(SIGINT, &m_interrupt, nullptr);
        sigaction(SIGQUIT, &m_quit, nullptr);
    }

private:
    struct sigaction m_interrupt{}, m_quit{};
};

}  // namespace

Result<int> run_in_terminal(const std::vector<std::string>& argv, const std::stop_token& stop) {
    if (argv.empty()) return fail(ErrorKind::usage, "no command to run");
    std::vector<char*> words;
    words.reserve(argv.size() + 1);
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const IgnoreSignals ignored;
    posix_spawnattr_t attributes{};
    posix_spawnattr_init(&attributes);
    sigset_t plain;
    sigemptyset(&plain);
    for (const int signal : {SIGINT, SIGQUIT, SIGPIPE, SIGXFSZ}) sigaddset(&plain, signal);
    posix_spawnattr_setsigdefault(&attributes, &plain);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    pid_t pid = 0;
    const int problem = posix_spawnp(&pid, words[0], nullptr, &attributes, words.data(), environ);
    posix_spawnattr_destroy(&attributes);
    if (problem != 0) {
        return fail(ErrorKind::local_io, "cannot start " + argv.front() + ": " + std::strerror(problem));
    }
    keep_from_sweeps(pid);
    int status = 0;
    {
        // The terminal was closed, or we are being stopped: neither reaches the child by itself.
        const std::stop_callback hang_up(stop, [pid] { kill(pid, SIGHUP); });
        siginfo_t ended{};
        while (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
        }
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    constexpr int k_by_signal = 128;
    return WIFSIGNALED(status) ? k_by_signal + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace gdnctl
