// The supervisor of a local job, and the shell that runs its entrypoint. The shell waits at a gate, so that nothing
// runs before the process is on record.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/result.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/machine.h"
#include "platform/process.h"
#include "services/local/local_jobs.h"
#include "services/local/processes.h"
#include "services/local/store.h"

namespace gdnctl::local {

namespace {

struct Entrypoint {
    pid_t pid = 0;
    UniqueFd gate;     // write a byte to start; close to give up
    UniqueFd problem;  // errno of a failed exec, then end of file
};

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

// Forks a process with its own session, stdin null, stdout and stderr appended to `log`, and `cwd`. It waits at the
// gate. Error: infrastructure (fork, pipe) or local_io (log).
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

// Opens the gate. Returns 0, or the errno of a failed exec.
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

}  // namespace

}  // namespace gdnctl::local

// The process that supervises one local job: waits for its turn, runs the entrypoint, stops it on request, and records
// how it ended.
namespace gdnctl::local {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds k_tick{50};
constexpr milliseconds k_longest_wait{250};
constexpr milliseconds k_check_others{1000};  // how often a waiting job checks whether the jobs before it are alive
constexpr std::size_t k_excerpt = std::size_t{64} << 10;
constexpr int k_write_tries = 100;

volatile sig_atomic_t g_terminate = 0;
void on_terminate(int /*signal*/) { g_terminate = 1; }

enum class Turn { ours, stopped, too_late, terminated };

class Supervisor {
public:
    Supervisor(Store store, std::string id, std::map<std::string, std::string> env)
        : m_store(std::move(store)), m_id(std::move(id)), m_env(std::move(env)) {}

    Status take_over();
    void run();

private:
    Turn wait_for_turn();
    bool looks_free(bool look_at_others) const;
    bool try_start(Turn& turn);
    void supervise();
    Status start_entrypoint();
    void run_to_end();
    void stop_ladder();
    void reap();
    bool stop_wanted() const;
    bool is_gone() const;
    void leave_queue() const;
    void end(JobState state, std::string_view error_type, const std::string& message,
             std::optional<int> exit_code = std::nullopt);
    void end_with_status(int wait_status);
    bool pause(milliseconds d) const { return system_clock().sleep_for(d, {}); }

    Store m_store;
    std::string m_id;
    std::map<std::string, std::string> m_env;
    LocalRequest m_request;
    JobDetails m_details;
    Entrypoint m_entrypoint;
    std::optional<int> m_wait_status;
    bool m_stopped = false;
    bool m_terminated = false;
};

void set_up_process() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);  // so that a size limit shows up as EFBIG
    struct sigaction action{};
    action.sa_handler = on_terminate;
    sigaction(SIGTERM, &action, nullptr);
}

Status Supervisor::take_over() {
    GDNCTL_TRY_ASSIGN(m_request, m_store.read_request(m_id));
    if (auto sent = m_env.extract(std::string(k_entrypoint_variable))) m_request.entrypoint = std::move(sent.mapped());
    GDNCTL_TRY_ASSIGN(m_details, m_store.read(m_id));
    return m_store.write_supervisor(m_id, {identity_of(getpid()), std::nullopt});
}

// Requested by a user, or by removing the job's folder.
bool Supervisor::stop_wanted() const {
    struct stat info{};
    return stat(m_store.file(m_id, "stop").c_str(), &info) == 0 || is_gone();
}

bool Supervisor::is_gone() const {
    struct stat info{};
    return stat(m_store.job(m_id).c_str(), &info) != 0 && errno == ENOENT;
}

// Checks the queue without the lock, to decide whether taking the lock is worthwhile.
bool Supervisor::looks_free(bool look_at_others) const {
    if (m_request.resources.empty()) return true;
    const auto queue = m_store.peek_queue();
    if (!queue || may_start(*queue, m_id, m_request.capacity)) return true;
    if (!look_at_others) return false;
    // The jobs that hold resources, and the one that waits directly before this one, which in turn watches those before
    // it.
    std::vector<std::string> watched;
    std::string before;
    for (const QueueEntry& entry : *queue) {
        if (entry.id == m_id) break;
        if (!entry.holds) before = entry.id;
    }
    for (const QueueEntry& entry : *queue) {
        if (entry.id == before || (entry.holds && entry.id != m_id)) watched.push_back(entry.id);
    }
    bool freed = false;
    for (const std::string& id : watched) {
        if (m_store.is_looked_after(id)) continue;
        if (const auto lock = m_store.lock()) freed = m_store.settle_queued(id) || freed;
    }
    return freed;
}

// Checks the queue once under the lock. True when the wait is over, with `turn` set.
bool Supervisor::try_start(Turn& turn) {
    const auto lock = m_store.lock();
    if (!lock) return false;
    const auto now = m_store.read(m_id);
    if (!now || is_terminal(now->state)) {
        turn = Turn::stopped;
        return true;
    }
    // The process that requested it was killed before the record said so.
    if (stop_wanted()) {
        end(JobState::stopped, "", std::string(job_message::k_stopped));
        turn = Turn::stopped;
        return true;
    }
    if (!m_request.resources.empty()) {
        auto queue = m_store.queue();
        auto mine = std::find_if(queue.begin(), queue.end(), [&](const QueueEntry& e) { return e.id == m_id; });
        if (mine == queue.end()) mine = queue.insert(queue.end(), {m_id, m_request.resources, false});
        mine->holds = may_start(queue, m_id, m_request.capacity);
        if (!m_store.write_queue(queue) || !mine->holds) return false;
    }
    turn = Turn::ours;
    if (const Status started = start_entrypoint(); !started) {
        end(JobState::failed, job_error::k_start_failure,
            "Job supervisor actor could not start the entrypoint: " + started.error().text());
        turn = Turn::stopped;
    }
    return true;
}

Turn Supervisor::wait_for_turn() {
    Clock& clock = system_clock();
    const auto start = clock.monotonic();
    const auto limit = milliseconds(static_cast<std::int64_t>(m_request.start_timeout_s * 1000));
    auto looked_at_others = start - k_check_others;
    struct stat seen{};
    milliseconds wait = k_tick;
    for (;;) {
        if (g_terminate != 0) return Turn::terminated;
        if (is_gone()) return Turn::stopped;
        const auto now = clock.monotonic();
        const bool look = now - looked_at_others >= k_check_others;
        if (look) looked_at_others = now;
        struct stat queue{};
        stat((m_store.root() / "queue.json").c_str(), &queue);
        const bool changed = queue.st_ino != seen.st_ino || queue.st_mtim.tv_nsec != seen.st_mtim.tv_nsec;
        seen = queue;
        Turn turn = Turn::ours;
        if (stop_wanted() || ((look || changed) && looks_free(look))) {
            if (try_start(turn)) return turn;
        }
        if (clock.monotonic() - start >= limit) return Turn::too_late;
        pause(std::min(wait, limit));
        wait = std::min(wait * 2, k_longest_wait);
    }
}

// With the lock held, no command can stop the job between the last check and RUNNING.
Status Supervisor::start_entrypoint() {
    GDNCTL_TRY_ASSIGN(m_entrypoint, prepare_entrypoint(m_request.entrypoint, m_env, m_store.file(m_id, "log"),
                                                       m_store.file(m_id, "work")));
    Status recorded = m_store.write_supervisor(m_id, {identity_of(getpid()), identity_of(m_entrypoint.pid)});
    if (recorded) {
        m_details.state = JobState::running;
        m_details.message = job_message::k_running;
        m_details.driver_node_id = "local-" + host_name().value_or("");
        m_details.driver_pid = m_entrypoint.pid;
        recorded = m_store.write(m_details);
    }
    if (recorded) return {};
    m_entrypoint.gate.reset();
    waitpid(m_entrypoint.pid, nullptr, 0);
    return recorded;
}

void Supervisor::reap() {
    int status = 0;
    for (;;) {
        const pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) return;
        if (pid == m_entrypoint.pid) m_wait_status = status;
    }
}

// The job's own environment says how it wants to be stopped.
void Supervisor::stop_ladder() {
    const auto word = [&](const char* name) {
        const auto it = m_env.find(name);
        return it == m_env.end() ? std::string() : it->second;
    };
    const int signal_number = word("RAY_JOB_STOP_SIGNAL") == "SIGINT" ? SIGINT : SIGTERM;
    const auto seconds = text::parse_int(word("RAY_JOB_STOP_WAIT_TIME_S"));
    const milliseconds grace =
        std::chrono::seconds(seconds && *seconds >= 0 ? std::min<std::int64_t>(*seconds, 3600) : 3);
    Clock& clock = system_clock();
    const auto kill_at = clock.monotonic() + grace;
    for (const ProcessId& id : family_of(getpid())) {
        send_signal(id, signal_number);
        send_signal(id, SIGCONT);
    }
    while (clock.monotonic() < kill_at) {
        reap();
        if (family_of(getpid()).empty()) break;
        pause(k_tick);
    }
    end_processes([] { return family_of(getpid()); }, milliseconds(0), clock);
    reap();
}

void Supervisor::run_to_end() {
    if (const int problem = open_gate(m_entrypoint); problem != 0) {
        waitpid(m_entrypoint.pid, nullptr, 0);
        end(JobState::failed, job_error::k_command_start_error,
            "Job failed to start its entrypoint command: [Errno " + std::to_string(problem) + "] " +
                std::strerror(problem) + ": '/bin/sh'");
        return;
    }
    milliseconds wait{5};
    while (!m_wait_status) {
        reap();
        if (m_wait_status) break;
        if (g_terminate != 0 || stop_wanted()) {
            m_terminated = !stop_wanted();
            m_stopped = true;
            stop_ladder();
            break;
        }
        pause(wait);
        wait = std::min(wait * 2, k_tick);
    }
    // Remaining processes would keep writing to the log, and might keep a device busy.
    end_processes([] { return family_of(getpid()); }, milliseconds(0), system_clock());
    reap();
    if (m_terminated) {
        end(JobState::failed, job_error::k_died,
            "Job supervisor actor died: local supervisor " + std::to_string(getpid()) + " was told to end");
    } else if (m_stopped) {
        end(JobState::stopped, "", std::string(job_message::k_stopped));
    } else {
        end_with_status(*m_wait_status);
    }
}

void Supervisor::end_with_status(int status) {
    const int code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0) {
        end(JobState::succeeded, "", std::string(job_message::k_succeeded), 0);
        return;
    }
    std::string excerpt;
    if (const UniqueFd log(open(m_store.file(m_id, "log").c_str(), O_RDONLY | O_CLOEXEC)); log.valid()) {
        struct stat info{};
        if (fstat(log.get(), &info) == 0) {
            excerpt.resize(k_excerpt);
            const off_t from = std::max<off_t>(0, info.st_size - static_cast<off_t>(k_excerpt));
            const ssize_t n = pread(log.get(), excerpt.data(), excerpt.size(), from);
            excerpt.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
        }
    }
    end(JobState::failed, job_error::k_command_error, job_message::exit_code(code, excerpt), code);
}

void Supervisor::end(JobState state, std::string_view error_type, const std::string& message,
                     std::optional<int> exit_code) {
    m_details.state = state;
    m_details.message = message;
    if (!error_type.empty()) m_details.error_type = std::string(error_type);
    m_details.driver_exit_code = exit_code;
    m_details.end_time = system_clock().wall();
}

void Supervisor::supervise() {
    switch (wait_for_turn()) {
        case Turn::ours: run_to_end(); break;
        case Turn::stopped: leave_queue(); break;
        case Turn::too_late:
            end(JobState::failed, job_error::k_start_timeout, job_message::start_timeout(m_request.start_timeout_s));
            break;
        case Turn::terminated:
            end(JobState::failed, job_error::k_died,
                "Job supervisor actor died: local supervisor " + std::to_string(getpid()) + " was told to end");
            break;
    }
}

// The process that ended the job may have been killed before it removed the job from the queue.
void Supervisor::leave_queue() const {
    if (is_terminal(m_details.state) || is_gone()) return;
    if (const auto lock = m_store.lock()) m_store.settle_queued(m_id);
}

void Supervisor::run() {
    supervise();
    m_store.bring_back(m_request);  // before the job counts as ended
    // A full disk may become free again; the last attempts omit the log excerpt.
    for (int i = 0; i < k_write_tries && is_terminal(m_details.state) && !is_gone(); ++i) {
        {
            const auto lock = m_store.lock();  // not held while waiting, so that other jobs continue
            if (lock && m_store.finish(m_details)) break;
        }
        if (i > 0) m_details.message = m_details.message.substr(0, m_details.message.find(", last available"));
        pause(milliseconds(200));
    }
    if (!m_request.keep_workdir) m_store.remove_workdir(m_id);
}

}  // namespace

}  // namespace gdnctl::local

namespace gdnctl {

int run_local_supervisor(const std::filesystem::path& job_folder) {
    local::set_up_process();
    auto env = local::receive_environment();
    if (!env) {
        local::report_ready(tl::unexpected(env.error()));
        return 1;
    }
    const auto root = job_folder.parent_path().parent_path();
    local::Supervisor supervisor(local::Store(root, system_clock()), job_folder.filename().string(), std::move(*env));
    const Status ready = supervisor.take_over();
    local::report_ready(ready);
    if (!ready) return 1;
    supervisor.run();
    return 0;
}

}  // namespace gdnctl
