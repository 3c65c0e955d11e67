#include "platform/process.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "core/result.h"
#include "core/text.h"
#include "platform/descendants.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/progress.h"
#include "platform/signals.h"

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

namespace {

// One output stream of a child: bytes or lines to a callback, or captured within a limit.

class OutputStream {
public:
    using Callback = std::function<void(std::string_view)>;
    OutputStream(const Callback& on_bytes, const Callback& on_line, std::size_t limit)
        : m_on_bytes(on_bytes), m_on_line(on_line), m_limit(limit) {}

    void feed(std::string_view bytes);
    void finish();  // passes on a last line without newline

    bool truncated() const { return m_truncated; }
    std::string take() { return std::move(m_kept); }

private:
    void keep(std::string_view bytes);

    const Callback& m_on_bytes;
    const Callback& m_on_line;
    std::size_t m_limit;
    std::string m_kept;  // captured bytes, or the current line so far
    bool m_truncated = false;
};

void OutputStream::keep(std::string_view bytes) {
    const std::size_t room = m_limit - std::min(m_limit, m_kept.size());
    if (bytes.size() > room) m_truncated = true;
    m_kept.append(bytes.substr(0, room));
}

void OutputStream::feed(std::string_view bytes) {
    if (m_on_bytes) return m_on_bytes(bytes);
    if (!m_on_line) return keep(bytes);
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        keep(bytes.substr(0, end));
        if (end == std::string_view::npos) return;
        m_on_line(m_kept);
        m_kept.clear();
        bytes.remove_prefix(end + 1);
    }
}

void OutputStream::finish() {
    if (!m_on_line || m_kept.empty()) return;
    m_on_line(m_kept);
    m_kept.clear();
}

// Starts a program, up to the moment when it runs.

struct Started {
    pid_t pid = 0;
    UniqueFd in;        // for writing; not valid: no input
    UniqueFd out, err;  // for reading; not valid: the stream goes to a file or to the other one
};

// Uses vfork and exec, not posix_spawn, which cannot make the child die with us (PR_SET_PDEATHSIG) and, in some of the
// glibc versions that we support, cannot start a session or change the working folder.

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

// `mark_word` is added to GDNCTL_PROCESS_MARK. Errors as Process::run.
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

using std::chrono::milliseconds;
using End = ProcessResult::End;

// Longest time between checks: limits follow the injected clock, which need not agree with poll()'s.
constexpr milliseconds k_look_around{1000};
// Interval for counting descendants while they are being ended, and for polling the child on kernels without pidfd.
constexpr milliseconds k_look_closely{20};
// Interval for calling ProcessSpec::watch, and for recording the ancestry of descendants.
constexpr milliseconds k_watch{250};
constexpr milliseconds k_note{1000};
// A process that survives SIGKILL this long hangs in the kernel.
constexpr milliseconds k_patience{5000};

std::string new_mark_word() {
    static std::atomic<unsigned> runs{0};
    const auto self = process_info(getpid());
    return fmt::format("{}-{}-{}", getpid(), self ? self->id.start_ticks : 0, ++runs);
}

// One child from start to end, all in the calling thread.
class Run {
public:
    Run(const ProcessSpec& spec, Clock& clock, Started started)
        : m_spec(spec),
          m_clock(clock),
          m_leader(started.pid),
          m_group(started.pid, spec.death_signal),
          m_in(std::move(started.in)),
          m_out_fd(std::move(started.out)),
          m_err_fd(std::move(started.err)),
          m_input(spec.stdin_bytes),
          m_out(spec.on_stdout, spec.on_stdout_line, spec.capture_limit),
          m_err(spec.on_stderr, spec.on_stderr_line, spec.capture_limit),
          m_pidfd(static_cast<int>(syscall(SYS_pidfd_open, m_leader, 0))),
          m_wake(eventfd(0, EFD_CLOEXEC)),
          m_started(clock.monotonic()),
          m_last_output(m_started) {
        if (const auto info = process_info(m_leader)) m_leader_id = info->id;
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    ~Run() {
        if (m_leader_alive && m_phase != Phase::done) {  // a callback has thrown
            kill(-m_leader, SIGKILL);
            waitpid(m_leader, nullptr, 0);
        }
        Family::instance().forget_leader(m_leader);
    }

    ProcessResult to_the_end() {
        if (m_spec.on_start) m_spec.on_start(m_leader);
        const std::stop_callback on_stop(m_spec.stop, [this] {
            const std::uint64_t one = 1;
            [[maybe_unused]] const ssize_t n = write(m_wake.get(), &one, sizeof one);
        });
        while (m_phase != Phase::done) {
            wait_for_events();
            look_at_leader();
            Family::instance().reap_adopted();
            if (m_phase == Phase::running) look_at_limits();
            Progress::keep_ticking();
            if (m_phase == Phase::interrupting) look_at_interrupt();
            if (m_phase == Phase::ending) end_members();
        }
        return collect();
    }

private:
    enum class Phase { running, interrupting, ending, done };

    milliseconds elapsed_since(Clock::Monotonic start) const {
        return std::chrono::duration_cast<milliseconds>(m_clock.monotonic() - start);
    }

    int poll_timeout() const {
        if (m_phase != Phase::running || (m_leader_alive && !m_pidfd.valid())) return int{k_look_closely.count()};
        milliseconds wait = m_spec.watch ? k_watch : k_look_around;
        // One more than the remainder, so that the limit has passed when poll() returns.
        const auto until = [&](milliseconds limit, Clock::Monotonic start) {
            if (limit.count() > 0) wait = std::min(wait, limit - elapsed_since(start) + milliseconds(1));
        };
        until(m_spec.wall_limit, m_started);
        until(m_spec.idle_limit, m_last_output);
        return static_cast<int>(std::max(wait, milliseconds(0)).count());
    }

    void wait_for_events() {
        const bool wants_input = m_in.valid() && m_input.empty() && m_phase == Phase::running &&
                                 (!m_spec.stdin_ready || m_spec.stdin_ready());
        std::array<pollfd, 6> fds = {{{m_out_fd.get(), POLLIN, 0},
                                      {m_err_fd.get(), POLLIN, 0},
                                      {m_input.empty() ? -1 : m_in.get(), POLLOUT, 0},
                                      {wants_input ? m_spec.stdin_fd : -1, POLLIN, 0},
                                      {m_leader_alive ? m_pidfd.get() : -1, POLLIN, 0},
                                      {m_phase == Phase::running ? m_wake.get() : -1, POLLIN, 0}}};
        if (poll(fds.data(), fds.size(), poll_timeout()) <= 0) return;
        if (fds[0].revents != 0) drain(m_out_fd, m_out);
        if (fds[1].revents != 0) drain(m_err_fd, m_err);
        if (fds[2].revents != 0) feed();
        if (fds[3].revents != 0) fetch();
    }

    // Reads what is available, but not forever: a child that writes without pause must still reach its limits.
    void drain(UniqueFd& fd, OutputStream& stream) {
        constexpr int k_most_reads = 16;
        std::array<char, std::size_t{64} << 10> buffer;
        for (int i = 0; i < k_most_reads && fd.valid(); ++i) {
            const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
            if (n > 0) {
                m_last_output = m_clock.monotonic();
                stream.feed({buffer.data(), static_cast<std::size_t>(n)});
            } else if (n < 0 && errno == EAGAIN) {
                return;
            } else if (n == 0 || errno != EINTR) {
                fd.reset();
            }
        }
    }

    void feed() {
        const ssize_t n = write(m_in.get(), m_input.data(), m_input.size());
        if (n > 0) m_input.remove_prefix(static_cast<std::size_t>(n));
        const bool failed = n < 0 && errno != EAGAIN && errno != EINTR;
        // It is not an error if the child does not read all of its input.
        if (failed || (m_input.empty() && m_spec.stdin_fd < 0)) m_in.reset();
    }

    // Takes more input for the child once all before it is written.
    void fetch() {
        m_fetched.resize(std::size_t{64} << 10);
        const ssize_t n = read(m_spec.stdin_fd, m_fetched.data(), m_fetched.size());
        if (n > 0) {
            m_input = std::string_view(m_fetched).substr(0, static_cast<std::size_t>(n));
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            m_in.reset();
        }
    }

    void look_at_leader() {
        if (!m_leader_alive) return;
        const pid_t ended = waitpid(m_leader, &m_status, WNOHANG);
        if (ended == 0 || (ended < 0 && errno == EINTR)) return;
        if (ended < 0) m_status = W_EXITCODE(127, 0);  // something else reaped it; do not report success
        m_leader_alive = false;
        m_in.reset();
        if (m_phase != Phase::running) return;
        if (m_spec.leaves_behind && leave_behind()) {
            m_phase = Phase::done;
        } else {
            start_ending();
        }
    }

    bool leave_behind() {
        drain(m_out_fd, m_out);
        drain(m_err_fd, m_err);
        m_out.finish();
        if (!WIFEXITED(m_status) || !m_spec.leaves_behind(WEXITSTATUS(m_status))) return false;
        for (const auto& member : Family::instance().members(m_leader_id)) {
            note_survivor(member);
            Family::instance().spare(member);
        }
        return true;
    }

    void look_at_limits() {
        if (m_spec.stop.stop_requested()) {
            m_reason = End::stopped;
        } else if (m_spec.wall_limit.count() > 0 && elapsed_since(m_started) >= m_spec.wall_limit) {
            m_reason = End::wall_limit;
        } else if (m_spec.idle_limit.count() > 0 && is_idle()) {
            m_reason = End::idle_limit;
        } else if (m_spec.watch && !m_spec.watch()) {
            m_reason = End::watch;
        }
        if (m_spec.takes_strays && (m_reason || elapsed_since(m_noted) >= k_note)) {
            m_noted = m_clock.monotonic();
            Family::instance().note_descendants();
        }
        if (m_reason) start_ending();
    }

    bool is_idle() {
        const off_t size = size_of(m_spec.stdout_file) + size_of(m_spec.stderr_file);
        if (size != m_file_size) {
            m_file_size = size;
            m_last_output = m_clock.monotonic();
        }
        return elapsed_since(m_last_output) >= m_spec.idle_limit;
    }

    static off_t size_of(const std::filesystem::path& path) {
        struct stat facts{};
        return !path.empty() && stat(path.c_str(), &facts) == 0 ? facts.st_size : 0;
    }

    void start_ending() {
        if (!m_leader_alive || m_spec.interrupt_grace.count() == 0) return start_sweep();
        m_phase = Phase::interrupting;
        m_ending_since = m_clock.monotonic();
        send_signal(m_leader_id, SIGINT);
        send_signal(m_leader_id, SIGCONT);
    }

    void look_at_interrupt() {
        if (!m_leader_alive || elapsed_since(m_ending_since) >= m_spec.interrupt_grace) start_sweep();
    }

    void start_sweep() {
        m_phase = Phase::ending;
        m_ending_since = m_clock.monotonic();
        if (!m_leader_alive) return;
        kill(-m_leader, SIGTERM);
        kill(-m_leader, SIGCONT);  // a stopped process does not react to SIGTERM
    }

    void end_members() {
        if (!m_leader_alive && !Family::has_children()) {
            m_phase = Phase::done;
            return;
        }
        const auto members = Family::instance().members(m_leader_id);
        const milliseconds since = elapsed_since(m_ending_since);
        if (members.empty() && !m_leader_alive) {
            m_phase = Phase::done;
        } else if (since >= m_spec.grace + k_patience && m_kills > k_patience / k_look_closely) {
            log::warning("{} of the processes that '{}' started cannot be terminated", members.size(),
                         m_spec.argv.front());
            m_phase = Phase::done;
        }
        if (since >= m_spec.grace) ++m_kills;
        if (since >= m_spec.grace && m_leader_alive) kill(-m_leader, SIGKILL);
        for (const auto& member : members) {
            const bool is_new = m_asked.insert(member).second;
            if (!m_leader_alive) note_survivor(member);
            if (since >= m_spec.grace) {
                send_signal(member, SIGKILL);
            } else if (is_new) {
                send_signal(member, SIGTERM);
                send_signal(member, SIGCONT);
            }
        }
    }

    void note_survivor(const ProcessId& id) {
        if (m_survivors.insert(id).second) m_survivor_facts.push_back({id, process_command(id.pid), process_age(id)});
    }

    ProcessResult collect() {
        drain(m_out_fd, m_out);
        drain(m_err_fd, m_err);
        m_out.finish();
        m_err.finish();
        Family::instance().reap_adopted();
        ProcessResult result;
        if (m_leader_alive) m_status = SIGKILL;  // sent, but not yet effective
        result.exit_code = WIFSIGNALED(m_status) ? -WTERMSIG(m_status) : WEXITSTATUS(m_status);
        result.end = m_reason.value_or(WIFSIGNALED(m_status) ? End::signalled : End::exited);
        result.out_truncated = m_out.truncated();
        result.err_truncated = m_err.truncated();
        if (!m_spec.on_stdout_line) result.out = m_out.take();
        if (!m_spec.on_stderr_line) result.err = m_err.take();
        result.elapsed = elapsed_since(m_started);
        result.swept = m_asked.empty() ? 0 : static_cast<int>(m_survivors.size());
        result.survivors = std::move(m_survivor_facts);
        return result;
    }

    const ProcessSpec& m_spec;
    Clock& m_clock;
    pid_t m_leader;
    ProcessId m_leader_id;
    KilledWithUs m_group;
    UniqueFd m_in, m_out_fd, m_err_fd;
    std::string_view m_input;  // for the child, not yet written: of stdin_bytes, then of m_fetched
    std::string m_fetched;
    OutputStream m_out, m_err;
    UniqueFd m_pidfd, m_wake;
    Clock::Monotonic m_started, m_last_output, m_ending_since;
    Clock::Monotonic m_noted{};  // when descendants were last recorded
    Phase m_phase = Phase::running;
    std::optional<End> m_reason;  // why we ended it; empty: it ended by itself
    bool m_leader_alive = true;
    int m_status = 0;
    off_t m_file_size = 0;
    int m_kills = 0;                  // rounds of KILL so far
    std::set<ProcessId> m_asked;      // processes that were sent TERM
    std::set<ProcessId> m_survivors;  // seen alive after the leader's end
    std::vector<ProcessResult::Survivor> m_survivor_facts;
};

class SystemProcess final : public Process {
public:
    explicit SystemProcess(Clock& clock) : m_clock(clock) {}

    Result<ProcessResult> run(const ProcessSpec& spec) override {
        std::signal(SIGPIPE, SIG_IGN);  // a child that closes its stdin must not end us
        log::debug("run: {}{}", text::shell_join(spec.argv),
                   spec.cwd.empty() ? "" : "  (in " + spec.cwd.string() + ")");
        if (spec.stop.stop_requested()) {
            ProcessResult result;
            result.end = End::stopped;
            return result;
        }
        GDNCTL_TRY_ASSIGN(Started started, start_program(spec, new_mark_word()));
        return Run(spec, m_clock, std::move(started)).to_the_end();
    }

private:
    Clock& m_clock;
};

}  // namespace

std::string describe_end(const ProcessResult& result, const ProcessSpec& spec) {
    switch (result.end) {
        case End::exited: return fmt::format("exited with code {}", result.exit_code);
        case End::signalled:
            return fmt::format("was killed by signal {} ({})", -result.exit_code, strsignal(-result.exit_code));
        case End::wall_limit: return "ran longer than " + format_duration(spec.wall_limit);
        case End::idle_limit: return "wrote nothing for " + format_duration(spec.idle_limit);
        case End::stopped: return "was stopped";
        case End::watch: return "was ended";
    }
    return {};
}

Process& system_process() {
    static SystemProcess process(system_clock());
    return process;
}

std::unique_ptr<Process> make_process(Clock& clock) { return std::make_unique<SystemProcess>(clock); }

}  // namespace gdnctl
