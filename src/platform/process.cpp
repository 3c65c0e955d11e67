#include "platform/process.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/descendants.h"
#include "platform/process_family.h"
#include "platform/process_start.h"
#include "platform/process_stream.h"
#include "platform/signals_private.h"

namespace gdnctl {

namespace {

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
