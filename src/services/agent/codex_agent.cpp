// One attempt of codex, from its first event to the end of its last descendant.
#include <algorithm>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "core/redact.h"
#include "core/text.h"
#include "platform/clock.h"
#include "platform/descendants.h"
#include "platform/fs.h"
#include "services/agent/attempt.h"
#include "services/agent/codex.h"
#include "services/agent/codex_events.h"
#include "services/agent/rollout.h"
#include "services/agent/verdict.h"

namespace gdnctl {

namespace {

using namespace codex;
using std::chrono::milliseconds;
using End = ProcessResult::End;

constexpr milliseconds k_rollout_looks{500};

class Attempt {
public:
    Attempt(const CodexSettings& settings, const AgentRequest& request, Clock& clock)
        : m_settings(settings),
          m_request(request),
          m_clock(clock),
          m_rollout(codex_home_of(request.environment)),
          m_active(clock.monotonic()) {}

    Result<AgentOutcome> run(Process& process) {
        GDNCTL_TRY(prepare());
        const ProcessSpec spec = make_spec();
        GDNCTL_TRY_ASSIGN(const ProcessResult result, process.run(spec));
        GDNCTL_TRY(make_folder_again(m_request.files));
        m_rollout.poll(m_stream.thread_id);
        say_model();
        GDNCTL_TRY(m_events.close());
        GDNCTL_TRY(m_stderr.close());
        GDNCTL_TRY(m_rollout.copy_to(m_request.files.rollout));
        return conclude(result, spec);
    }

private:
    Status prepare() {
        GDNCTL_TRY(check_request(m_request));
        GDNCTL_TRY(remove_stale(m_request.files.last_message));
        GDNCTL_TRY(remove_stale(m_request.files.rollout));
        GDNCTL_TRY(m_events.open(m_request.files.events));
        GDNCTL_TRY(m_stderr.open(m_request.files.stderr_log));
        if (!m_request.resume_thread.empty()) m_rollout.skip_existing(m_request.resume_thread);
        return {};
    }

    ProcessSpec make_spec() {
        ProcessSpec spec = base_spec(m_request);
        spec.argv = codex_argv(m_settings, m_request.worktree, m_request.files.last_message, m_request.resume_thread);
        spec.interrupt_grace = m_request.limits.interrupt_grace;  // on SIGINT, codex ends its commands itself
        spec.on_start = [this](pid_t pid) { m_leader = pid; };
        spec.watch = [this] { return goes_on(); };
        if (m_settings.json) {
            spec.on_stdout_line = [this](std::string_view line) { take_event(line); };
            spec.on_stderr_line = [this](std::string_view line) { take_complaint(line); };
        } else {
            spec.merge_stderr = true;
            spec.on_stdout_line = [this](std::string_view line) { take_human(line); };
        }
        if (m_request.keep_background) {
            spec.leaves_behind = [this](int code) {
                return code == 0 && (m_stream.turn_completed || !m_settings.json);
            };
        }
        return spec;
    }

    void keep(std::string_view line) const {
        if (m_request.transcript) m_request.transcript(line);
    }

    void show(std::string_view line) const {
        if (m_request.show) m_request.show(line);
    }

    // Reports once if codex uses a model other than the requested one, or if none was requested.
    void say_model() {
        const RolloutFacts& facts = m_rollout.facts();
        if (m_said_model || facts.model.empty()) return;
        m_said_model = true;
        if (facts.model == m_settings.model) return;
        const std::string line = fmt::format("codex is using model {} with reasoning effort {}", facts.model,
                                             facts.effort.empty() ? "of its own choice" : facts.effort);
        keep(line);
        show(line);
    }

    void take_event(std::string_view line) {
        const Event event = parse_event(line);
        if (is_progress(event)) m_active = m_clock.monotonic();
        if (event.type == Event::Type::text) {
            if (text::trim(line).empty()) return;
            m_events.line(fmt::format(R"({{"t":"{}","text":{}}})", format_iso8601(m_clock.wall()), quoted(line)));
            keep(line);
            if (m_filter.shows(line)) show(line);
        } else {
            m_events.line(fmt::format(R"({{"t":"{}","event":{}}})", format_iso8601(m_clock.wall()), text::trim(line)));
        }
        const auto happened = m_stream.take(event, m_clock.monotonic());
        if (!happened) return;
        if (m_request.on_event) m_request.on_event(*happened);
        for (const auto& shown : render(*happened, true)) keep(shown);
        for (const auto& shown : render(*happened, m_request.show_file_updates)) show(shown);
    }

    void take_complaint(std::string_view line) {
        m_stderr.line(line);
        if (m_first_complaint.empty() && is_complaint(line)) m_first_complaint = std::string(text::trim(line));
    }

    void take_human(std::string_view line) {
        m_active = m_clock.monotonic();
        m_events.line(line);
        m_human.take(line, m_stream);
        if (m_first_complaint.empty() && (line.starts_with("Error") || line.starts_with("error"))) {
            m_first_complaint = std::string(line);
        }
        keep(line);
        if (m_filter.shows(line)) show(line);
    }

    bool end(AgentClass kind, std::string reason) {
        m_our_doing = kind;
        m_our_reason = std::move(reason);
        return false;
    }

    // Called four times a second and after output; false ends the attempt.
    bool goes_on() {
        const auto now = m_clock.monotonic();
        const std::string& thread = m_stream.thread_id;
        if (!thread.empty() && now - m_looked >= k_rollout_looks) {
            m_looked = now;
            if (m_rollout.poll(thread)) m_active = now;
            say_model();
        }
        if (m_events.failed() || m_stderr.failed()) return end(AgentClass::failed, "a transcript cannot be written");
        const std::string& wanted = m_request.resume_thread;
        if (!wanted.empty() && !thread.empty() && thread != wanted) {
            return end(AgentClass::thread_missing, fmt::format("another thread was resumed: {}", thread));
        }
        const AgentLimits& limits = m_request.limits;
        const RolloutFacts& facts = m_rollout.facts();
        if (limits.compactions >= 0 && facts.compactions > limits.compactions) {
            return end(AgentClass::compaction_limit, fmt::format("summarised its context {} times", facts.compactions));
        }
        if (limits.requests > 0 && facts.requests > limits.requests) {
            return end(AgentClass::request_limit, fmt::format("asked the model {} times", facts.requests));
        }
        const auto used = tokens_so_far();
        if (limits.tokens > 0 && used && used->total() >= limits.tokens) {
            return end(AgentClass::token_limit, fmt::format("used {} of {} tokens", used->total(), limits.tokens));
        }
        return !is_hanging(now);
    }

    bool is_hanging(Clock::Monotonic now) {
        const AgentLimits& limits = m_request.limits;
        const auto idle = std::chrono::duration_cast<milliseconds>(now - m_active);
        if (limits.idle.count() <= 0 || idle < limits.idle) return false;
        const bool busy = m_stream.has_open_command() || has_foreign_sessions(m_leader);
        if (busy && (limits.idle_while_busy.count() <= 0 || idle < limits.idle_while_busy)) return false;
        const milliseconds limit = busy ? limits.idle_while_busy : limits.idle;
        end(AgentClass::hang, fmt::format("no event and no token for {}{}", format_duration(limit),
                                          busy ? ", while a command was running" : ""));
        return true;
    }

    std::optional<AgentTokens> tokens_so_far() const {
        const RolloutFacts& facts = m_rollout.facts();
        if (facts.usages > 0) return facts.tokens;
        if (facts.thread_total) return less(*facts.thread_total, m_request.resumed_tokens);
        if (m_stream.usage) return less(*m_stream.usage, m_request.resumed_tokens);
        return std::nullopt;
    }

    Evidence evidence(const ProcessResult& result, const ProcessSpec& spec) const {
        Evidence evidence;
        evidence.our_doing = m_our_doing;
        evidence.our_reason = m_our_reason;
        if (result.end == End::wall_limit) {
            evidence.our_doing = AgentClass::wall_limit;
            evidence.our_reason = describe_end(result, spec);
        } else if (result.end == End::stopped) {
            evidence.our_doing = AgentClass::stopped;
            evidence.our_reason = "was stopped";
        }
        const RolloutFacts& facts = m_rollout.facts();
        evidence.exit_code = result.exit_code;
        evidence.events = m_settings.json;
        evidence.thread_started = !m_stream.thread_id.empty();
        evidence.turn_completed = m_stream.turn_completed || (!m_settings.json && result.exit_code == 0);
        evidence.turn_failed = m_stream.turn_failed;
        evidence.aborted = facts.aborted;
        evidence.failure = m_stream.failure.empty() ? facts.error_message : m_stream.failure;
        evidence.info = facts.error_info;
        evidence.first_complaint = m_first_complaint;
        evidence.rate_windows = facts.rate_windows;
        evidence.now = m_clock.wall();
        // codex may have resumed another thread and finished before the watch noticed.
        const std::string& wanted = m_request.resume_thread;
        if (!evidence.our_doing && !wanted.empty() && evidence.thread_started && m_stream.thread_id != wanted) {
            evidence.our_doing = AgentClass::thread_missing;
            evidence.our_reason = fmt::format("another thread was resumed: {}", m_stream.thread_id);
        }
        return evidence;
    }

    AgentOutcome conclude(const ProcessResult& result, const ProcessSpec& spec) const {
        Verdict verdict = judge(evidence(result, spec));
        AgentOutcome outcome;
        outcome.kind = verdict.kind;
        outcome.action = verdict.action;
        outcome.exit_status = verdict.exit_status;
        outcome.reason = std::move(verdict.reason);
        outcome.explained = verdict.explained;
        outcome.stop_reason = std::move(verdict.stop_reason);
        outcome.retry_after = verdict.retry_after;
        outcome.not_before = verdict.not_before;
        const RolloutFacts& facts = m_rollout.facts();
        outcome.thread_id = m_stream.thread_id;
        outcome.model = facts.model.empty() ? m_human.model : facts.model;
        outcome.effort = facts.effort;
        outcome.tokens = tokens_so_far();
        outcome.requests = facts.requests;
        outcome.compactions = facts.compactions;
        outcome.rate_windows = facts.rate_windows;
        outcome.commands = m_stream.commands;
        outcome.left_open = m_stream.left_open();
        outcome.unknown_events = m_stream.unknown_events;
        outcome.text_lines = m_stream.text_lines;
        outcome.survivors = result.survivors;
        outcome.elapsed = result.elapsed;
        outcome.files = m_request.files;
        outcome.final_message = m_stream.final_message;
        settle_message(outcome);
        return outcome;
    }

    // codex creates the file at its start and writes it only on success.
    void settle_message(AgentOutcome& outcome) const {
        const auto& path = m_request.files.last_message;
        if (path.empty()) return;
        const auto written = read_file_if_exists(path);
        if (!written || !*written) return;
        if (outcome.ok() && outcome.final_message.empty()) outcome.final_message = **written;
        if (!outcome.ok() && (*written)->empty()) {
            std::error_code ignored;
            std::filesystem::remove(path, ignored);
        }
    }

    const CodexSettings& m_settings;
    const AgentRequest& m_request;
    Clock& m_clock;
    RolloutFollower m_rollout;
    Transcript m_events, m_stderr;
    Stream m_stream;
    HumanReader m_human;
    OutputFilter m_filter{m_request.show_file_updates};
    pid_t m_leader = 0;
    Clock::Monotonic m_active;    // the last activity
    Clock::Monotonic m_looked{};  // at the rollout
    std::optional<AgentClass> m_our_doing;
    std::string m_our_reason;
    std::string m_first_complaint;
    bool m_said_model = false;
};

class CodexAgent final : public Agent {
public:
    CodexAgent(CodexSettings settings, Process& process, Clock& clock)
        : m_settings(std::move(settings)), m_process(process), m_clock(clock) {}
    std::string_view name() const override { return "codex"; }
    Result<AgentOutcome> run(const AgentRequest& request) override {
        return Attempt(m_settings, request, m_clock).run(m_process);
    }

private:
    CodexSettings m_settings;
    Process& m_process;
    Clock& m_clock;
};

}  // namespace

std::unique_ptr<Agent> make_codex_agent(CodexSettings settings, Process& process, Clock& clock) {
    return std::make_unique<CodexAgent>(std::move(settings), process, clock);
}

}  // namespace gdnctl
