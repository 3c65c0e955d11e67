// Uses vfork and exec, not posix_spawn, which cannot make the child die with us (PR_SET_PDEATHSIG) and, in some of the
// glibc versions that we support, cannot start a session or change the working folder.
#include "platform/process_start.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/descendants.h"
#include "platform/env.h"
#include "platform/exec_words.h"
#include "platform/fs.h"
#include "platform/process_family.h"

namespace gdnctl {

namespace {

std::map<std::string, std::string> child_environment(const ProcessSpec& spec, const std::string& mark_word) {
    auto variables = process_env().all();
    std::string mark = variables[std::string(k_process_mark)];
    if (spec.clean_env) variables.clear();
    for (const auto& [name, value] : spec.env) {
        if (value) {
            variables[name] = *value;
        } else {
            variables.erase(name);
        }
    }
    mark += mark.empty() ? "" : ":";
    variables[std::string(k_process_mark)] = mark + mark_word;
    return variables;
}

bool is_program(const std::string& path) {
    struct stat facts{};
    return stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && access(path.c_str(), X_OK) == 0;
}

// The file that `name` refers to, looked up as a shell would do it for the child.
Result<std::string> find_program(const ProcessSpec& spec, const std::map<std::string, std::string>& variables) {
    const std::string& name = spec.argv.front();
    if (name.find('/') != std::string::npos) return name;
    const auto path = variables.find("PATH");
    const std::string folders = path != variables.end() ? path->second : "/usr/local/bin:/usr/bin:/bin";
    for (const auto folder : text::split(folders, ':')) {
        const std::string candidate = folder.empty() ? "./" + name : fmt::format("{}/{}", folder, name);
        const bool relative = candidate.front() != '/' && !spec.cwd.empty();
        if (is_program(relative ? (spec.cwd / candidate).string() : candidate)) return candidate;
    }
    return fail(ErrorKind::local_io, fmt::format("cannot run '{}': not found in PATH", name),
                fmt::format("install '{}', or add its folder to PATH", name));
}

struct ChildEnds {
    UniqueFd in, out, err;
};

// The child's standard streams are moved to 0..2 one by one, so none of them may already be there.
Status put_above_standard(UniqueFd& fd) {
    if (!fd.valid() || fd.get() > 2) return {};
    UniqueFd moved(fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
    if (!moved.valid()) return fail(ErrorKind::local_io, fmt::format("cannot open a file: {}", std::strerror(errno)));
    fd = std::move(moved);
    return {};
}

Status open_pipe(UniqueFd& read_end, UniqueFd& write_end) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        return fail(ErrorKind::local_io, fmt::format("cannot open a pipe: {}", std::strerror(errno)));
    }
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
    GDNCTL_TRY(put_above_standard(read_end));
    return put_above_standard(write_end);
}

Status open_file(UniqueFd& fd, const std::filesystem::path& path, int flags) {
    fd.reset(open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0600));
    if (!fd.valid()) {
        const bool reading = flags == O_RDONLY;
        return tl::unexpected(
            file_error(ErrorKind::local_io, reading ? "read" : "write", path, errno).within("starting a program"));
    }
    return put_above_standard(fd);
}

Status set_non_blocking(const UniqueFd& fd) {
    if (fd.valid() && fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK) != 0) {
        return fail(ErrorKind::local_io, fmt::format("cannot set up a pipe: {}", std::strerror(errno)));
    }
    return {};
}

Status open_streams(const ProcessSpec& spec, ChildEnds& child, Started& ours) {
    constexpr int k_append = O_WRONLY | O_CREAT | O_APPEND;
    if (!spec.stdin_file.empty() || (spec.stdin_bytes.empty() && spec.stdin_fd < 0)) {
        GDNCTL_TRY(open_file(child.in, spec.stdin_file.empty() ? "/dev/null" : spec.stdin_file, O_RDONLY));
    } else {
        GDNCTL_TRY(open_pipe(child.in, ours.in));
    }
    GDNCTL_TRY(spec.stdout_file.empty() ? open_pipe(ours.out, child.out)
                                        : open_file(child.out, spec.stdout_file, k_append));
    if (!spec.merge_stderr) {
        GDNCTL_TRY(spec.stderr_file.empty() ? open_pipe(ours.err, child.err)
                                            : open_file(child.err, spec.stderr_file, k_append));
    }
    for (const UniqueFd* fd : {&ours.in, &ours.out, &ours.err}) GDNCTL_TRY(set_non_blocking(*fd));
    return {};
}

enum class Step : int { folder, exec };

struct Failure {
    Step step;
    int error_number;
};

// Everything that the child needs, prepared before vfork: until its exec, it runs in our memory.
struct ChildPlan {
    const char* program;
    char* const* argv;
    char* const* environment;
    const char* folder;  // nullptr: same as ours
    int in, out, err, report;
    int inherited;  // -1: none
    int death_signal;
    bool new_session;
    bool survives_size_limit;
    pid_t parent;
};

// The child never returns, so the stack frames that AddressSanitizer would allocate for it would never be released.
#define GDNCTL_IN_CHILD __attribute__((no_sanitize("address")))

[[noreturn]] GDNCTL_IN_CHILD void give_up(const ChildPlan& plan, Step step) {
    const Failure failure{step, errno};
    [[maybe_unused]] const ssize_t n = write(plan.report, &failure, sizeof failure);
    _exit(127);
}

GDNCTL_IN_CHILD void become_program(void* argument) {
    const auto& plan = *static_cast<const ChildPlan*>(argument);
    if (plan.new_session) {
        setsid();
    } else {
        setpgid(0, 0);
    }
    prctl(PR_SET_PDEATHSIG, plan.death_signal, 0, 0, 0);
    if (getppid() != plan.parent) _exit(127);  // gdnctl died before the line above
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) sigaction(signal, &plain, nullptr);
    if (plan.survives_size_limit) plain.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &plain, nullptr);
    dup2(plan.in, 0);
    dup2(plan.out, 1);
    dup2(plan.err, 2);
    if (plan.inherited >= 0) fcntl(plan.inherited, F_SETFD, 0);  // of the child's own table
    if (plan.folder != nullptr && chdir(plan.folder) != 0) give_up(plan, Step::folder);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(plan.program, plan.argv, plan.environment);
    give_up(plan, Step::exec);
}

Error start_error(const ProcessSpec& spec, const Failure& failure) {
    const std::string& name = spec.argv.front();
    if (failure.step == Step::folder) {
        return file_error(ErrorKind::local_io, fmt::format("run '{}' in", name), spec.cwd, failure.error_number);
    }
    std::string hint;
    if (failure.error_number == EACCES) hint = fmt::format("make it executable: chmod +x {}", text::shell_quote(name));
    if (failure.error_number == ENOEXEC) hint = "a script starts with a line like #!/bin/sh";
    if (failure.error_number == E2BIG) hint = "pass long values in a file, not as arguments or variables";
    return {
        ErrorKind::local_io, fmt::format("cannot run '{}': {}", name, std::strerror(failure.error_number)), hint, {}};
}

// Blocks signals while the child is being made: our handlers must not run in it.
pid_t start_with_signals_blocked(ChildPlan& plan, const std::string& mark_word, bool takes_strays) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const pid_t pid = Family::instance().start_leader({mark_word, takes_strays}, become_program, &plan);
    const int problem = errno;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = problem;
    return pid;
}

}  // namespace

Result<Started> start_program(const ProcessSpec& spec, const std::string& mark_word) {
    if (spec.argv.empty() || spec.argv.front().empty()) return fail(ErrorKind::usage, "no program to run");
    const auto variables = child_environment(spec, mark_word);
    GDNCTL_TRY_ASSIGN(const std::string program, find_program(spec, variables));
    ChildEnds child;
    Started started;
    GDNCTL_TRY(open_streams(spec, child, started));
    UniqueFd report_read;
    UniqueFd report_write;
    GDNCTL_TRY(open_pipe(report_read, report_write));

    std::vector<std::string> words = spec.argv;
    std::vector<std::string> entries;
    for (const auto& [name, value] : variables) entries.push_back(fmt::format("{}={}", name, value));
    const auto argv = exec_words(words);
    const auto environment = exec_words(entries);
    const int out = child.out.get();
    ChildPlan plan{program.c_str(),
                   argv.data(),
                   environment.data(),
                   spec.cwd.empty() ? nullptr : spec.cwd.c_str(),
                   child.in.get(),
                   out,
                   spec.merge_stderr ? out : child.err.get(),
                   report_write.get(),
                   spec.inherited,
                   spec.death_signal,
                   spec.new_session,
                   spec.survives_size_limit,
                   getpid()};
    started.pid = start_with_signals_blocked(plan, mark_word, spec.takes_strays);
    if (started.pid < 0) {
        return fail(ErrorKind::local_io, fmt::format("cannot run '{}': {}", spec.argv.front(), std::strerror(errno)),
                    "too many processes or too little memory");
    }
    // Both sides do this. Without it, a signal to the group could arrive before the group exists.
    if (!spec.new_session) setpgid(started.pid, started.pid);
    report_write.reset();
    Failure failure{};
    ssize_t n = 0;
    do {
        n = read(report_read.get(), &failure, sizeof failure);
    } while (n < 0 && errno == EINTR);
    if (n != static_cast<ssize_t>(sizeof failure)) return started;
    waitpid(started.pid, nullptr, 0);
    Family::instance().forget_leader(started.pid);
    return tl::unexpected(start_error(spec, failure));
}

}  // namespace gdnctl
