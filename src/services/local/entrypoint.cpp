#include "services/local/entrypoint.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "platform/exec_words.h"
#include "platform/fs.h"

namespace gdnctl::local {

namespace {

struct ChildPlan {
    int log, null, gate, problem;
    const char* cwd;
    char* const* argv;
    char* const* envp;
};

[[noreturn]] void report_and_exit(int problem) {
    const int number = errno;
    [[maybe_unused]] const ssize_t n = write(problem, &number, sizeof number);
    _exit(127);
}

[[noreturn]] void become_entrypoint(const ChildPlan& plan) {
    setsid();
    char go = 0;
    ssize_t n = 0;
    do {
        n = read(plan.gate, &go, 1);
    } while (n < 0 && errno == EINTR);
    if (n != 1) _exit(127);
    for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (chdir(plan.cwd) != 0) report_and_exit(plan.problem);
    dup2(plan.null, 0);
    dup2(plan.log, 1);
    dup2(plan.log, 2);
    execve("/bin/sh", plan.argv, plan.envp);
    report_and_exit(plan.problem);
}

tl::unexpected<Error> cannot_start() {
    return fail(ErrorKind::infrastructure, std::string("cannot start the entrypoint: ") + std::strerror(errno));
}

}  // namespace

Result<Entrypoint> prepare_entrypoint(const std::string& command, const std::map<std::string, std::string>& env,
                                      const std::filesystem::path& log, const std::filesystem::path& cwd) {
    const UniqueFd log_fd(open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    if (!log_fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "open", log, errno));
    const UniqueFd null_fd(open("/dev/null", O_RDWR | O_CLOEXEC));
    std::array<int, 2> gate{};
    std::array<int, 2> problem{};
    if (!null_fd.valid() || pipe2(gate.data(), O_CLOEXEC) != 0) return cannot_start();
    UniqueFd gate_read(gate[0]);
    UniqueFd gate_write(gate[1]);
    if (pipe2(problem.data(), O_CLOEXEC) != 0) return cannot_start();
    UniqueFd problem_read(problem[0]);
    const UniqueFd problem_write(problem[1]);

    std::vector<std::string> words = {"/bin/sh", "-c", command};
    std::vector<std::string> environment;
    for (const auto& [name, value] : env) environment.push_back(name + "=" + value);
    const std::vector<char*> argv = exec_words(words);
    const std::vector<char*> envp = exec_words(environment);

    const pid_t pid = fork();
    if (pid < 0) return cannot_start();
    if (pid == 0) {
        close(gate_write.release());  // otherwise the gate would never see its end
        become_entrypoint(
            {log_fd.get(), null_fd.get(), gate_read.get(), problem_write.get(), cwd.c_str(), argv.data(), envp.data()});
    }
    return Entrypoint{pid, std::move(gate_write), std::move(problem_read)};
}

int open_gate(Entrypoint& entrypoint) {
    const char go = 1;
    [[maybe_unused]] const ssize_t written = write(entrypoint.gate.get(), &go, 1);
    entrypoint.gate.reset();
    int number = 0;
    ssize_t n = 0;
    do {
        n = read(entrypoint.problem.get(), &number, sizeof number);
    } while (n < 0 && errno == EINTR);
    entrypoint.problem.reset();
    return n == static_cast<ssize_t>(sizeof number) ? number : 0;
}

}  // namespace gdnctl::local
