// Any program as an agent: the prompt on standard input, its work in the tree, the end of its output as the message.
#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/clock.h"
#include "platform/descendants.h"
#include "platform/fs.h"
#include "services/agent/agent.h"
#include "services/agent/attempt.h"
#include "services/agent/verdict.h"

namespace gdnctl {

namespace {

using namespace codex;
using std::chrono::milliseconds;
using End = ProcessResult::End;

constexpr std::size_t k_message = std::size_t{64} << 10;
constexpr std::size_t k_complaints = std::size_t{16} << 10;

class CommandAttempt {
public:
    CommandAttempt(const std::vector<std::string>& argv, const AgentRequest& request, Clock& clock)
        : m_argv(argv), m_request(request), m_clock(clock), m_active(clock.monotonic()) {}

    Result<AgentOutcome> run(Process& process) {
        GDNCTL_TRY(check_request(m_request));
        if (!m_request.resume_thread.empty()) {
            return fail(ErrorKind::usage, fmt::format("'{}' has no threads to resume", m_argv.front()));
        }
        GDNCTL_TRY(remove_stale(m_request.files.last_message));
        GDNCTL_TRY(m_transcript.open(m_request.files.events));
        GDNCTL_TRY(m_stderr.open(m_request.files.stderr_log));
        const ProcessSpec spec = make_spec();
        GDNCTL_TRY_ASSIGN(const ProcessResult result, process.run(spec));
        GDNCTL_TRY(make_folder_again(m_request.files));
        GDNCTL_TRY(m_transcript.close());
        GDNCTL_TRY(m_stderr.close());
        return conclude(result, spec);
    }

private:
    ProcessSpec make_spec() {
        ProcessSpec spec = base_spec(m_request);
        spec.argv = m_argv;
        spec.on_start = [this](pid_t pid) { m_leader = pid; };
        spec.on_stdout_line = [this](std::string_view line) {
            take(line, m_transcript);
            m_message.append(line).append("\n");
            if (m_message.size() > 2 * k_message) m_message.erase(0, m_message.size() - k_message);
        };
        spec.on_stderr_line = [this](std::string_view line) {
            take(line, m_stderr);
            if (!text::trim(line).empty()) m_last_complaint = std::string(text::trim(line));
            m_complaints.append(line).append("\n");
            if (m_complaints.size() > 2 * k_complaints) m_complaints.erase(0, m_complaints.size() - k_complaints);
        };
        spec.watch = [this] { return !m_transcript.failed() && !m_stderr.failed() && !is_hanging(); };
        if (m_request.keep_background) spec.leaves_behind = [](int code) { return code == 0; };
        return spec;
    }

    void take(std::string_view line, Transcript& into) {
        m_active = m_clock.monotonic();
        into.line(line);
        if (m_request.transcript) m_request.transcript(line);
        if (m_request.show && m_filter.shows(line)) m_request.show(line);
    }

    bool is_hanging() {
        const AgentLimits& limits = m_request.limits;
        const auto idle = std::chrono::duration_cast<milliseconds>(m_clock.monotonic() - m_active);
        if (limits.idle.count() <= 0 || idle < limits.idle) return false;
        const bool busy = !descendants_of(m_leader, all_processes()).empty();
        if (busy && (limits.idle_while_busy.count() <= 0 || idle < limits.idle_while_busy)) return false;
        m_hang = fmt::format("no output for {}", format_duration(busy ? limits.idle_while_busy : limits.idle));
        return true;
    }

    Result<AgentOutcome> conclude(const ProcessResult& result, const ProcessSpec& spec) {
        Evidence evidence;
        if (!m_hang.empty()) {
            evidence.our_doing = AgentClass::hang;
            evidence.our_reason = m_hang;
        } else if (result.end == End::wall_limit) {
            evidence.our_doing = AgentClass::wall_limit;
            evidence.our_reason = describe_end(result, spec);
        } else if (result.end == End::stopped) {
            evidence.our_doing = AgentClass::stopped;
            evidence.our_reason = "was stopped";
        } else if (result.exit_code > 0) {
            evidence.our_doing = AgentClass::failed;
            evidence.our_reason =
                describe_end(result, spec) + (m_last_complaint.empty() ? "" : ": " + m_last_complaint);
        }
        evidence.exit_code = result.exit_code;
        evidence.turn_completed = true;  // the exit code is the only result
        evidence.thread_started = true;
        Verdict verdict = judge(evidence);
        AgentOutcome outcome;
        outcome.exit_status = verdict.kind == AgentClass::failed ? result.exit_code : verdict.exit_status;
        if (verdict.kind == AgentClass::failed) blame_provider(verdict);
        outcome.kind = verdict.kind;
        outcome.action = verdict.action;
        outcome.reason = verdict.reason;
        outcome.explained = verdict.explained;
        outcome.retry_after = verdict.retry_after;
        outcome.not_before = verdict.not_before;
        outcome.survivors = result.survivors;
        outcome.elapsed = result.elapsed;
        outcome.files = m_request.files;
        const std::size_t tail = m_message.size() - std::min(m_message.size(), k_message);
        outcome.final_message = std::string(text::trim(std::string_view(m_message).substr(tail)));
        if (outcome.ok() && !m_request.files.last_message.empty()) {
            GDNCTL_TRY(replace_whole(m_request.files.last_message, redact(outcome.final_message) + "\n"));
        }
        return outcome;
    }

    // It failed because its model could not be asked, if its last words say so.
    void blame_provider(Verdict& verdict) const {
        constexpr std::size_t k_lines = 6;
        for (const std::string* said : {&m_complaints, &m_message}) {
            auto blamed = provider_trouble(text::last_lines(text::trim(*said), k_lines), m_clock.wall());
            if (!blamed) continue;
            blamed->reason = verdict.reason.substr(0, verdict.reason.find(": ")) + ": " + blamed->reason;
            verdict = std::move(*blamed);
            return;
        }
    }

    const std::vector<std::string>& m_argv;
    const AgentRequest& m_request;
    Clock& m_clock;
    Transcript m_transcript, m_stderr;
    OutputFilter m_filter{m_request.show_file_updates};
    std::string m_message, m_complaints, m_last_complaint, m_hang;
    pid_t m_leader = 0;
    Clock::Monotonic m_active;
};

class CommandAgent final : public Agent {
public:
    CommandAgent(std::vector<std::string> argv, Process& process, Clock& clock)
        : m_argv(std::move(argv)), m_process(process), m_clock(clock) {}
    std::string_view name() const override { return "command"; }
    Result<AgentOutcome> run(const AgentRequest& request) override {
        if (m_argv.empty()) return fail(ErrorKind::usage, "no agent program is given");
        auto outcome = CommandAttempt(m_argv, request, m_clock).run(m_process);
        if (outcome && outcome->kind == AgentClass::failed) tell_of_missing_program(outcome->exit_status);
        return outcome;
    }

private:
    // Explains a shell's exit codes for a missing or non-executable program. Only once: later attempts fail alike.
    void tell_of_missing_program(int status) {
        constexpr int k_not_run = 126, k_not_found = 127;
        if (m_told || (status != k_not_run && status != k_not_found)) return;
        m_told = true;
        log::warning(
            "hint: exit status {}: the shell {}. Commit the program, because iterations work without your uncommitted "
            "files, or use an absolute path",
            status, status == k_not_found ? "could not find the program" : "is not allowed to run it (chmod +x)");
    }

    std::vector<std::string> m_argv;
    Process& m_process;
    Clock& m_clock;
    bool m_told = false;
};

}  // namespace

std::unique_ptr<Agent> make_command_agent(std::vector<std::string> argv, Process& process, Clock& clock) {
    return std::make_unique<CommandAgent>(std::move(argv), process, clock);
}

}  // namespace gdnctl
