// One attempt of the agent: its prompt, its cost, and what comes next.
#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/log.h"
#include "core/log_timed.h"
#include "core/redact.h"
#include "core/text.h"
#include "loop/engine/engine.h"
#include "loop/engine/messages.h"
#include "loop/prompt/prompt.h"
#include "platform/fs.h"
#include "platform/replace.h"
#include "platform/signals.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

namespace {

// Attempts of the open iteration that count against the retries.
std::int64_t failed_attempts(std::span<const Record> open) {
    return std::count_if(open.begin(), open.end(), [](const Record& record) {
        return record.type == RecordType::attempt_end && record.word("class") != "ok" && record.count("free") == 0;
    });
}

// Consecutive waits for the provider at the end of the open iteration's attempts, and their total duration.
std::pair<int, std::int64_t> waits_in_a_row(std::span<const Record> open) {
    int waits = 0;
    std::int64_t ms = 0;
    for (const Record& record : open) {
        if (record.type != RecordType::attempt_end || record.word("class") == "stopped") continue;
        waits = record.count("free") > 0 ? waits + 1 : 0;
        ms += record.count("pause_ms");
    }
    return {waits, ms};
}

// Whether the prompt of the previous iteration was refused too.
bool refused_before(std::span<const Record> records) {
    const auto open = open_iteration(records);
    const Record* before = last_of(records.first(records.size() - open.size()), RecordType::attempt_end);
    return before != nullptr && before->word("class") == word_of(AgentClass::invalid_prompt);
}

bool was_retried_once(std::span<const Record> open, std::string_view kind) {
    return std::any_of(open.begin(), open.end(), [&](const Record& record) {
        return record.type == RecordType::attempt_end && record.word("class") == kind;
    });
}

// Ended by us, or by a signal: its git may have had no time to remove its locks.
bool was_killed(const AgentOutcome& outcome) {
    switch (outcome.kind) {
        case AgentClass::hang:
        case AgentClass::wall_limit:
        case AgentClass::token_limit:
        case AgentClass::compaction_limit:
        case AgentClass::request_limit:
        case AgentClass::stopped:
        case AgentClass::crashed: return true;
        default: return !outcome.survivors.empty();
    }
}

}  // namespace

// The recipe defines the name. The prompt of an earlier attempt is kept if it differs.
Result<std::string> Engine::write_prompt(int iteration) {
    std::vector<std::string> directives = m_settings.directives;
    for (const auto& more : m_parts.directives) {
        auto list = trimmed_directives(more(records()));
        directives.insert(directives.end(), list.begin(), list.end());
    }
    std::string prompt =
        assemble_prompt(m_settings.prompt_template, {iteration, m_total, first_base().sha}, directives);
    const fs::path file = m_parts.artefacts.path(iteration, "prompt.txt");
    GDNCTL_TRY_ASSIGN(const auto before, read_file_if_exists(file));
    if (before == prompt) return prompt;
    if (before) {
        std::error_code problem;
        fs::rename(file, m_parts.artefacts.unused(iteration, "prompt.earlier", ".txt"), problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "move", file, problem.value()));
    }
    GDNCTL_TRY(replace_whole(file, prompt, 0600));
    return prompt;
}

Result<AgentRequest> Engine::request_for(int iteration, int attempt) {
    const Artefacts& files = m_parts.artefacts;
    AgentRequest request;
    GDNCTL_TRY_ASSIGN(request.prompt, write_prompt(iteration));
    request.worktree = m_parts.git.workdir();
    if (!m_settings.subfolder.empty()) request.worktree /= m_settings.subfolder;
    request.loop_id = m_settings.loop_id;
    request.environment = m_settings.environment;
    request.limits = m_settings.limits;
    if (m_settings.budget.tokens) {
        const std::int64_t left = std::max<std::int64_t>(1, *m_settings.budget.tokens - state().tokens);
        request.limits.tokens = request.limits.tokens > 0 ? std::min(request.limits.tokens, left) : left;
    }
    request.files.events = files.path(iteration, fmt::format("attempt-{}-events.jsonl", attempt));
    request.files.stderr_log = files.path(iteration, fmt::format("attempt-{}-stderr.log", attempt));
    request.files.rollout = files.path(iteration, fmt::format("attempt-{}-rollout.jsonl", attempt));
    request.files.last_message = files.path(iteration, "last-message.txt");
    request.show_file_updates = m_settings.options.show_file_updates;
    request.keep_background = m_settings.keep_background;
    request.on_event = m_parts.on_event;
    request.stop = m_parts.stop;
    return request;
}

// What a signal would interrupt from now on.
void Engine::set_doing(const char* doing) {
    if (m_parts.doing != nullptr) m_parts.doing->store(doing);
}

void Engine::set_doing(StepKind kind) {
    const char* doing = "the current step is finished first";
    if (kind == StepKind::run_attempt) doing = "the agent is being stopped, and what it did so far is kept";
    if (kind == StepKind::judge) doing = "the current check or job is being stopped; its candidate is kept";
    if (kind == StepKind::begin_iteration) doing = "no further iteration starts";
    set_doing(doing);
}

Status Engine::wait_for_provider() {
    if (const milliseconds wait = m_starts.wait(m_parts.clock.monotonic()); wait.count() > 0) {
        log::info("the provider has failed three starts in a row; waiting {}", format_duration(wait));
        set_doing("the wait for the provider is cut short; the attempt has not started");
        GDNCTL_TRY(sleep(wait));
    }
    if (!m_provider_free || *m_provider_free <= m_parts.clock.wall()) return {};
    log::info("the provider's usage limit is reached; waiting until {}", local_time(*m_provider_free));
    set_doing("the wait for the provider is cut short; the attempt has not started");
    return sleep(std::chrono::duration_cast<milliseconds>(*m_provider_free - m_parts.clock.wall()));
}

Status Engine::run_attempt(int iteration, int attempt) {
    GDNCTL_TRY(wait_for_provider());
    set_doing(StepKind::run_attempt);  // also when an attempt is repeated, which begins as another step
    GDNCTL_TRY_ASSIGN(AgentRequest request, request_for(iteration, attempt));
    std::ofstream transcript(m_parts.artefacts.path(iteration, "transcript.log"), std::ios::app);
    request.transcript = [&](std::string_view line) { transcript << redact(line) << '\n'; };
    request.show = m_parts.show;
    GDNCTL_TRY(add(RecordType::attempt, iteration, {}, {{"attempt", attempt}}));
    if (m_parts.command) log::write_as_it_is(log::Level::info, fmt::format("$ {}", m_parts.command(request)));
    GDNCTL_TRY(m_parts.git.remember_setup());
    const Clock::Monotonic started = m_parts.clock.monotonic();
    const WallTime begun = m_parts.clock.wall();
    auto ran = m_parts.agent.run(request);
    const WallTime ended = m_parts.clock.wall();
    set_doing(StepKind::collect);
    if (!ran) return break_off(iteration, attempt, ran.error());
    const AgentOutcome outcome = std::move(*ran);
    if (is_providers(outcome.kind)) {
        m_starts.failed(started);
    } else {
        m_starts.succeeded();
    }
    log::info("{} attempt {}: {}", m_parts.agent.name(), attempt, summary_of(outcome));
    for (const auto& survivor : outcome.survivors) {
        log::warning("ended a process that outlived the agent: {} ({})", survivor.command, survivor.id.pid);
    }
    if (was_killed(outcome) && !m_settings.keep_background) {
        GDNCTL_TRY(m_parts.git.clear_locks_of_killed(begun, ended, true));
    }
    m_provider_free.reset();
    constexpr double k_used_up = 95;
    for (const auto& window : outcome.rate_windows) {
        if (window.used_percent < k_used_up || !window.resets_at) continue;
        m_provider_free = std::max(m_provider_free.value_or(*window.resets_at), *window.resets_at);
    }
    if (Status room_left = room(); !room_left && outcome.kind != AgentClass::stopped) {
        // The attempt may have failed only at this, or the agent may believe that it has committed.
        GDNCTL_TRY_ASSIGN(const bool committed, m_parts.git.committed(first_base()));
        if (!outcome.ok() || !committed) return break_off(iteration, attempt, room_left.error());
    }
    GDNCTL_TRY_ASSIGN(const Course course, course_after(outcome));
    if (outcome.kind == AgentClass::stopped) {
        // Its work so far is kept; --resume repeats the attempt.
        GDNCTL_TRY(m_parts.git.put_away(iteration, attempt, first_base()));
        if (clean_tree()) GDNCTL_TRY(m_parts.git.clear(iteration, first_base()));
    }
    GDNCTL_TRY(end_attempt(iteration, attempt, outcome, course));
    if (outcome.kind == AgentClass::stopped) return tl::unexpected(stopped_error());
    if (!course.retry) return {};
    const std::int64_t attempts = m_settings.options.codex_retries + 1;
    if (course.free) {
        log::warning("{}: {}; waiting {}", word_of(outcome.kind), outcome.reason, format_duration(course.pause));
    } else {
        log::write_as_it_is(log::Level::warning, message::agent_retry(static_cast<int>(failed_attempts(open())),
                                                                      static_cast<int>(attempts), outcome.exit_status));
    }
    set_doing("the pause before the next attempt is cut short; the attempt does not start");
    return sleep(course.pause);
}

// Handles an attempt that a full disk ended; --resume repeats it. Its work so far is kept if there is space. Otherwise
// the attempt stays open, and --resume first does that.
Status Engine::break_off(int iteration, int attempt, const Error& error) {
    if (error.kind != ErrorKind::local_io) return tl::unexpected(error);
    Status kept = m_parts.git.put_away(iteration, attempt, first_base());
    if (kept && clean_tree()) kept = m_parts.git.clear(iteration, first_base());
    if (kept) {
        AgentOutcome stopped;
        stopped.kind = AgentClass::stopped;
        stopped.reason = error.message;
        [[maybe_unused]] const Status ended = end_attempt(iteration, attempt, stopped, Course());
    }
    return tl::unexpected(error);
}

Status Engine::end_attempt(int iteration, int attempt, const AgentOutcome& outcome, const Course& course) {
    const bool stopped = outcome.kind == AgentClass::stopped;
    std::map<std::string, std::string> words = {{"class", std::string(word_of(outcome.kind))},
                                                {"next", course.retry || stopped ? "retry" : "collect"},
                                                {"reason", outcome.reason}};
    if (!outcome.thread_id.empty()) words["thread"] = outcome.thread_id;
    if (!outcome.model.empty()) words["model"] = outcome.model;
    if (!outcome.effort.empty()) words["effort"] = outcome.effort;
    if (!outcome.stop_reason.empty()) words["stop_reason"] = outcome.stop_reason;
    if (course.ends_run) words["stop_reason"] = "agent-error";
    std::map<std::string, std::int64_t> numbers = {{"attempt", attempt},
                                                   {"rc", outcome.exit_status},
                                                   {"wall_ms", outcome.elapsed.count()},
                                                   {"survivors", static_cast<std::int64_t>(outcome.survivors.size())}};
    if (outcome.tokens) {
        numbers["tokens"] = outcome.tokens->total();
        numbers["tokens_input"] = outcome.tokens->input;
        numbers["tokens_cached"] = outcome.tokens->cached_input;
        numbers["tokens_output"] = outcome.tokens->output;
    }
    if (course.free || stopped) numbers["free"] = 1;
    if (course.pause.count() > 0) numbers["pause_ms"] = course.pause.count();
    if (stopped) numbers["put_away"] = 1;
    if (outcome.explained) numbers["explained"] = 1;
    return add(RecordType::attempt_end, iteration, std::move(words), std::move(numbers));
}

// The provider has been down for two iterations: --resilient waits in the third.
bool Engine::is_waited_out(const AgentOutcome& outcome) const {
    const bool passes = outcome.kind == AgentClass::server_error || outcome.kind == AgentClass::stream_cut;
    if (!m_settings.options.resilient || !passes || !outcome.explained) return false;
    std::vector<PastIteration> with_this = past();
    with_this.push_back({Outcome::agent_error, "", said_of(word_of(outcome.kind), outcome.reason)});
    return circuit_breaker(with_this).has_value();
}

// A failed attempt may leave half an edit or a finished commit. Finished work is judged, never repeated.
Result<Engine::Course> Engine::course_after(const AgentOutcome& outcome) {
    Course course;
    if (outcome.ok() || outcome.kind == AgentClass::stopped) return course;
    GDNCTL_TRY_ASSIGN(const bool produced, m_parts.git.produced(first_base()));
    if (produced) {
        log::warning("the attempt failed ({}) after it had committed; judging the commit", outcome.reason);
        return course;
    }
    const auto retry_sleep = std::chrono::seconds(m_settings.options.retry_sleep_seconds);
    const bool left = failed_attempts(open()) < m_settings.options.codex_retries;
    const bool gone_on = outcome.action == AgentAction::retry && !left && is_waited_out(outcome);
    const AgentAction action = gone_on ? AgentAction::back_off : outcome.action;
    switch (action) {
        case AgentAction::back_off:
        case AgentAction::wait_until: {
            const auto [waits, waited_ms] = waits_in_a_row(open());
            std::uniform_real_distribution<double> share(0, 1);
            AgentOutcome asked = outcome;
            asked.action = action;
            const milliseconds pause = provider_pause(asked, waits, share(m_random), m_parts.clock.wall());
            const bool fits = waited_ms + pause.count() <= m_settings.longest_wait_s * 1000;
            if (fits) return Course{true, true, pause};
            log::error("{} for longer than --codex-max-wait", word_of(outcome.kind));
            // The limit's end is known and far away: every iteration until then would fail at once.
            const bool known =
                outcome.retry_after || (outcome.not_before && *outcome.not_before > m_parts.clock.wall());
            course.ends_run = known && pause.count() > m_settings.longest_wait_s * 1000;
            return course;
        }
        case AgentAction::retry:
        case AgentAction::fresh_thread:
            if (left) course = {true, false, retry_sleep};
            return course;
        case AgentAction::retry_once:
            if (left && !was_retried_once(open(), word_of(outcome.kind))) course = {true, false, retry_sleep};
            return course;
        default:
            course.ends_run = outcome.kind == AgentClass::invalid_prompt && refused_before(records());
            if (course.ends_run) log::error("the model refused the prompt in two iterations in a row");
            return course;
    }
}

}  // namespace gdnctl::loop
