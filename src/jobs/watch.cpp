#include "jobs/watch.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "core/time.h"
#include "jobs/stop.h"
#include "platform/clock.h"
#include "platform/http.h"
#include "platform/http_policy.h"
#include "platform/progress.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl {

namespace {

constexpr std::size_t k_line_limit = std::size_t{16} << 20;  // longer lines are matched in pieces
constexpr std::size_t k_held_limit = std::size_t{32} << 20;  // limit for kept lines; older ones are dropped

using std::chrono::milliseconds;

constexpr std::chrono::seconds k_first_patience{30};  // for a backend that has not answered yet
constexpr milliseconds k_refused_patience{3000};      // for a server that has not answered yet
constexpr std::chrono::minutes k_patience{10};        // for one that has answered
constexpr milliseconds k_end_patience{15000};         // for the end of a log that is not needed

// The waits double from half a second up to `longest`.
RetryPolicy doubling(milliseconds longest, milliseconds total) {
    RetryPolicy policy;
    policy.attempts = 0;
    policy.factor = 2;
    policy.max_delay = longest;
    policy.total = total;
    return policy;
}

// Asks for a job's details and tolerates a backend that is unreachable for a while.
class Poller {
public:
    Poller(JobBackend& backend, std::string_view id, const WatchOptions& options, Context& context)
        : m_backend(backend),
          m_id(id),
          m_context(context),
          m_last(options.last),
          m_exists(options.submitted),
          m_heard(options.submitted || backend.has_answered()),
          m_answered(context.clock.monotonic()) {}

    // nullopt: no answer this time.
    Result<std::optional<JobDetails>> ask() {
        auto details = m_backend.poll(m_id);
        if (details) {
            m_exists = m_heard = true;
            m_answered = m_context.clock.monotonic();
            m_failures = 0;
            if (m_last != nullptr) *m_last = *details;
            return std::optional(std::move(*details));
        }
        if (details.error().kind == ErrorKind::remote_missing) return tl::unexpected(missing(details.error()));
        const auto elapsed = std::chrono::duration_cast<milliseconds>(m_context.clock.monotonic() - m_answered);
        const auto next =
            http::next_attempt(doubling(milliseconds(15'000), patience(details.error())), ++m_failures, elapsed);
        m_delay = next.delay;
        if (!is_out_of_reach(details.error()) || next.verdict != http::NextAttempt::Verdict::wait) {
            return tl::unexpected(std::move(details).error());
        }
        log::warning("{}; trying again in {}", details.error().text(), format_duration(m_delay));
        return std::nullopt;
    }
    bool failing() const { return m_failures != 0; }
    // Pause before the next request.
    milliseconds delay(milliseconds usual) const { return failing() ? m_delay : usual; }

private:
    milliseconds patience(const Error& error) const {
        if (m_heard) return k_patience;
        return is_connection_refused(error) ? k_refused_patience : milliseconds(k_first_patience);
    }

    // No such job: it never existed, or no longer does.
    Error missing(const Error& error) {
        const auto session = remembered_session(m_id, m_context);
        // An Iris controller has no sessions: it has forgotten what it does not know.
        const bool no_sessions = m_backend.kind() == PlaceKind::iris;
        bool same = no_sessions;
        m_exists = m_exists || (no_sessions && session);
        if (session && !session->empty()) {
            const auto now = m_backend.session();
            same = now && *now == *session;
        }
        const bool restarted = !same && (m_exists || (session && !session->empty()));
        if (restarted) {
            return {ErrorKind::infrastructure,
                    "job record vanished (head restarted): " + std::string(m_id),
                    "its processes ended with the old head: submit again",
                    {}};
        }
        if (!m_exists) return error;
        return {ErrorKind::infrastructure,
                "job record vanished: " + std::string(m_id),
                no_sessions ? "its controller has forgotten it: submit again" : "someone has deleted it",
                {}};
    }

    JobBackend& m_backend;
    std::string_view m_id;
    Context& m_context;
    JobDetails* m_last;
    bool m_exists;
    bool m_heard;  // the backend has answered this command
    Clock::Monotonic m_answered;
    milliseconds m_delay{0};  // after the last failure
    int m_failures = 0;       // since the last answer
};

// Reads a log as it grows. Failing to read it, temporarily or for good, does not end the watch.
class LogDrain {
public:
    LogDrain(JobLog& log, const std::function<void(std::string_view)>& sink, Context& context)
        : m_log(log), m_sink(sink), m_context(context) {}

    // Reads what is new. True: there was something. If a job writes faster than we read, its state and the deadline are
    // checked in between.
    Result<bool> once(const std::optional<Clock::Monotonic>& deadline = std::nullopt) {
        if (m_gone) return false;
        constexpr std::size_t k_one_look = std::size_t{64} << 20;
        std::size_t seen = 0;
        const auto read = m_log.pump([&](std::string_view bytes) {
            m_sink(bytes);
            seen += bytes.size();
            const bool over = deadline && m_context.clock.monotonic() >= *deadline;
            return seen < k_one_look && !over && !m_context.stop.stop_requested();
        });
        if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
        if (read) {
            m_failing = false;
            m_said.clear();
            return *read > 0;
        }
        const ErrorKind kind = read.error().kind;
        m_gone = kind == ErrorKind::remote_missing || kind == ErrorKind::bad_input;
        if (!m_gone && !is_out_of_reach(read.error())) return tl::unexpected(read.error());
        const std::string words = read.error().text();
        if ((!m_failing || m_gone) && words != m_said) log::warning("{}", m_said = words);
        m_failing = true;
        m_last = read.error();
        return false;
    }

    // The job has ended: reads until nothing is new. `needed`: it has results only if that succeeds. False: the log is
    // not complete.
    Result<bool> rest(const std::optional<Clock::Monotonic>& deadline, bool needed) {
        const milliseconds patience = needed ? milliseconds(k_patience) : k_end_patience;
        const Clock::Monotonic start = m_context.clock.monotonic();
        const RetryPolicy waits = doubling(milliseconds(5000), patience);
        int looks = 0;
        bool said = false;
        for (;;) {
            // A node or a dashboard that has just lost the log may find it again.
            if (needed && m_last.kind == ErrorKind::remote_missing) m_gone = false;
            GDNCTL_TRY_ASSIGN(const bool more, once());
            if (more) continue;
            if (!m_failing) return true;
            if (m_gone && !(needed && m_last.kind == ErrorKind::remote_missing)) break;
            const Clock::Monotonic now = m_context.clock.monotonic();
            const Clock::Monotonic end = std::min(start + patience, deadline.value_or(Clock::Monotonic::max()));
            if (now >= end) break;
            if (needed && !said) log::info("waiting up to {} for the rest of the log", format_duration(patience));
            said = true;
            const auto left = std::chrono::ceil<milliseconds>(end - now);
            if (!m_context.clock.sleep_for(std::min(http::retry_delay(waits, ++looks), left), m_context.stop)) {
                return tl::unexpected(stopped_error());
            }
        }
        if (!needed) {
            if (!m_gone) log::warning("the end of the log could not be read");
            return false;
        }
        return fail(ErrorKind::infrastructure,
                    "log incomplete: the job has ended, but its results could not be read: " + m_last.message);
    }

private:
    JobLog& m_log;
    const std::function<void(std::string_view)>& m_sink;
    Context& m_context;
    bool m_failing = false, m_gone = false;
    Error m_last;        // while it fails
    std::string m_said;  // the last warning of this row of failures
};

// `[YYYY-mm-dd HH:MM:SS] <id> status=<S> <message>` on stderr.
void print_status(Context& context, const JobDetails& details, bool whole_message) {
    if (context.global.quiet) return;
    Progress::step_aside();
    std::string_view message = details.message;
    // The excerpt at the end of a failed job's message is what the reader has just seen.
    if (!whole_message)
        message = message.substr(0, std::min(message.find('\n'), message.find(", last available logs")));
    while (message.ends_with('\n')) message.remove_suffix(1);
    // The job may have written it.
    std::string shown;
    for (const std::string_view line : text::split(message, '\n')) {
        shown += (shown.empty() ? "" : "\n  ") + text::visible_line(line);
    }
    context.terminal.err(fmt::format("[{}] {} status={} {}\n", format_log_time(context.clock.wall()),
                                     text::visible_line(details.submission_id), text::visible(status_of(details)),
                                     shown));
}

class StatusLines {
public:
    StatusLines(Context& context, bool whole) : m_context(context), m_whole(whole) {}
    void show(const JobDetails& now) {
        const std::tuple<std::string, std::string, std::string> looks(status_of(now), now.message, now.other_state);
        if (m_last == looks) return;
        m_last = looks;
        print_status(m_context, now, m_whole);
        if (!is_known(now.state) || !now.other_state.empty()) {
            log::warning("unknown job state {}", text::visible(now.other_state));
        }
    }

private:
    Context& m_context;
    bool m_whole;
    std::optional<std::tuple<std::string, std::string, std::string>> m_last;
};

// Shows on a terminal how long nothing has come of a job. Never beside an unfinished line of its output.
class SilenceClock {
public:
    SilenceClock(std::string_view id, bool quiet, Context& context)
        : m_label(fmt::format("waiting for {}", id)),
          m_quiet(quiet || context.global.quiet || !context.terminal.err_is_tty() || Progress::is_live()),
          m_context(context) {
        restart();
    }
    void before(std::string_view output) {
        m_clock.reset();
        m_at_line_start = output.empty() ? m_at_line_start : output.ends_with('\n');
    }
    void restart() {
        if (m_quiet || m_clock || !m_at_line_start) return;
        m_clock.emplace(m_context.terminal, m_context.clock,
                        Progress::Options{.label = m_label, .after = std::chrono::seconds(2)});
        m_clock->tick();
    }

private:
    std::string m_label;
    bool m_quiet;
    Context& m_context;
    bool m_at_line_start = true;
    std::optional<Progress> m_clock;
};

// Sleeps at most until the deadline. False: stopped.
bool pause(Context& context, milliseconds interval, const std::optional<Clock::Monotonic>& deadline) {
    if (deadline) {
        const auto left = std::chrono::ceil<milliseconds>(*deadline - context.clock.monotonic());
        interval = std::clamp(interval, milliseconds(0), std::max(left, milliseconds(0)));
    }
    return context.clock.sleep_for(interval, context.stop) && !context.stop.stop_requested();
}

// A job without any information.
JobDetails unknown(std::string_view id) {
    JobDetails details;
    details.submission_id = id;
    return details;
}

std::optional<Clock::Monotonic> deadline_of(const WatchOptions& options, const Context& context) {
    if (!options.timeout) return std::nullopt;
    return context.clock.monotonic() + *options.timeout;
}

// While it lives, no request takes longer than the watch may.
class RequestLimit {
public:
    RequestLimit(JobBackend& backend, const std::optional<Clock::Monotonic>& deadline) : m_backend(backend) {
        m_backend.set_deadline(deadline);
    }
    ~RequestLimit() { m_backend.set_deadline(std::nullopt); }
    RequestLimit(const RequestLimit&) = delete;
    RequestLimit& operator=(const RequestLimit&) = delete;

private:
    JobBackend& m_backend;
};

}  // namespace

LogFilter::LogFilter(const LineRegex* regex, std::optional<std::size_t> hold, Out out)
    : m_regex(regex), m_hold(hold), m_out(std::move(out)) {}

void LogFilter::line(std::string_view text) {
    if (m_regex != nullptr) {
        const std::string_view body = text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
        if (!m_regex->matches(body)) return;
    }
    if (!m_hold) {
        m_out(text);
        return;
    }
    m_held.emplace_back(text);
    m_held_bytes += text.size();
    while (m_held.size() > *m_hold || (m_held_bytes > k_held_limit && m_held.size() > 1)) {
        m_held_bytes -= m_held.front().size();
        m_held.pop_front();
    }
}

void LogFilter::feed(std::string_view bytes) {
    if (m_regex == nullptr && !m_hold) {
        m_out(bytes);
        return;
    }
    while (!bytes.empty()) {
        const std::size_t newline = bytes.find('\n');
        const std::size_t size = newline == std::string_view::npos ? bytes.size() : newline + 1;
        m_partial += bytes.substr(0, size);
        bytes.remove_prefix(size);
        if (newline == std::string_view::npos && m_partial.size() < k_line_limit) return;
        line(m_partial);
        m_partial.clear();
    }
}

WithoutRayLines::WithoutRayLines(std::string_view id, std::string_view entrypoint, LogFilter::Out out)
    : m_announcement("Running entrypoint for job " + std::string(id) + ": " + std::string(entrypoint) + "\n"),
      m_out(std::move(out)) {}

void WithoutRayLines::feed(std::string_view bytes) {
    constexpr std::string_view k_setting_up = " -- Runtime env is setting up.\n";
    constexpr std::size_t k_longest_line = 200;
    if (m_announced) return m_out(bytes);
    m_held += bytes;
    if (!m_started) {
        // "2026-11-21 15:07:29,076\tINFO job_manager.py:581 -- Runtime env is setting up."
        const std::size_t end = m_held.find('\n');
        if (end == std::string::npos && m_held.size() < k_longest_line) return;
        m_started = true;
        const std::string_view line = std::string_view(m_held).substr(0, end == std::string::npos ? end : end + 1);
        if (line.ends_with(k_setting_up) && line.find(" job_manager.py:") != std::string_view::npos) {
            m_held.erase(0, line.size());
        }
    }
    const std::size_t at = m_held.find(m_announcement);
    if (at != std::string::npos) {
        m_announced = true;
        m_held.erase(at, m_announcement.size());
        return finish();
    }
    // Keeps an end that may be the beginning of it.
    std::size_t kept = std::min(m_held.size(), m_announcement.size() - 1);
    while (kept > 0 && !m_announcement.starts_with(std::string_view(m_held).substr(m_held.size() - kept))) --kept;
    if (kept < m_held.size()) m_out(std::string_view(m_held).substr(0, m_held.size() - kept));
    m_held.erase(0, m_held.size() - kept);
}

void WithoutRayLines::finish() {
    if (!m_held.empty()) m_out(m_held);
    m_held.clear();
}

void LogFilter::release() {
    for (const std::string& held : m_held) m_out(held);
    m_held.clear();
    m_held_bytes = 0;
    m_hold.reset();
    if (m_regex == nullptr && !m_partial.empty()) {
        m_out(m_partial);
        m_partial.clear();
    }
}

void LogFilter::finish() {
    if (!m_partial.empty()) line(m_partial);
    m_partial.clear();
    release();
}

Result<Watched> wait_for_job(JobBackend& backend, std::string_view id, const WatchOptions& options, Context& context) {
    Poller poller(backend, id, options, context);
    StatusLines lines(context, options.whole_messages);
    const auto deadline = deadline_of(options, context);
    const RequestLimit limit(backend, deadline);
    const SilenceClock silence(id, options.quiet, context);
    std::optional<JobDetails> last;
    for (;;) {
        GDNCTL_TRY_ASSIGN(auto now, poller.ask());
        if (now) {
            if (!options.quiet) lines.show(*now);
            if (is_terminal(now->state)) return Watched{std::move(*now), false};
            last = std::move(now);
        }
        if (deadline && context.clock.monotonic() >= *deadline) return Watched{last.value_or(unknown(id)), true};
        if (!pause(context, poller.delay(options.poll), deadline)) return tl::unexpected(stopped_error());
    }
}

Result<Watched> follow_job(JobBackend& backend, std::string_view id, JobLog& log, const WatchOptions& options,
                           const std::function<void(std::string_view)>& sink, Context& context) {
    Poller poller(backend, id, options, context);
    StatusLines lines(context, options.whole_messages);
    Clock::Monotonic heard = context.clock.monotonic();
    SilenceClock silence(id, options.quiet, context);
    const std::function<void(std::string_view)> hear = [&](std::string_view bytes) {
        heard = context.clock.monotonic();
        silence.before(bytes);
        sink(bytes);
    };
    LogDrain drain(log, hear, context);
    const auto deadline = deadline_of(options, context);
    const RequestLimit limit(backend, deadline);
    std::optional<JobDetails> last;
    Clock::Monotonic asked;
    std::optional<Clock::Monotonic> read;
    for (;;) {
        const FollowPace pace = backend.pace();
        const Clock::Monotonic now = context.clock.monotonic();
        const bool due = !last || last->state == JobState::pending || poller.failing() ||
                         now - asked >= std::min(options.poll, pace.status);
        if (due) {
            asked = now;
            GDNCTL_TRY_ASSIGN(auto details, poller.ask());
            if (details) last = std::move(details);
        }
        // The state was read first, so the log now contains everything the job wrote before it ended.
        const bool ended = last && is_terminal(last->state);
        bool complete = true;
        if (ended) {
            const bool needed = options.needs_log && last->state == JobState::succeeded;
            GDNCTL_TRY_ASSIGN(complete, drain.rest(deadline, needed));
        } else if (!read || now - *read >= std::min(options.poll, pace.log) || poller.failing()) {
            read = now;
            GDNCTL_TRY(drain.once(deadline));
        }
        GDNCTL_TRY(context.terminal.flush());
        if (last && !options.quiet) lines.show(*last);
        if (ended) return Watched{std::move(*last), false, false, complete};
        const bool over = deadline && context.clock.monotonic() >= *deadline;
        const bool idle = options.idle_timeout && context.clock.monotonic() - heard >= *options.idle_timeout;
        const bool left = options.leave_when_closed && context.terminal.out_closed();
        if (over || idle || left) return Watched{last.value_or(unknown(id)), over || idle, idle && !over};
        silence.restart();
        if (!pause(context, poller.delay(std::min({options.poll, pace.log, pace.status})), deadline)) {
            return tl::unexpected(stopped_error());
        }
    }
}

Result<JobOutput> read_output(JobBackend& backend, std::string_view id, std::optional<std::size_t> tail) {
    GDNCTL_TRY_ASSIGN(const auto log, backend.open_log(id, {tail}));
    JobOutput output;
    GDNCTL_TRY(log->pump([&](std::string_view bytes) {
        output.feed(bytes);
        return true;
    }));
    output.finish();
    return output;
}

Status print_log(JobBackend& backend, std::string_view id, const LineRegex* grep, std::size_t tail,
                 const LogFilter::Out& out, Context& context) {
    const bool whole = grep != nullptr;
    GDNCTL_TRY_ASSIGN(const auto log, backend.open_log(id, {whole ? std::nullopt : std::optional(tail)}));
    LogFilter filter(grep, whole ? std::optional(tail) : std::nullopt, out);
    GDNCTL_TRY(log->pump([&](std::string_view bytes) {
        filter.feed(bytes);
        return !context.terminal.out_closed() && !context.stop.stop_requested();
    }));
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    filter.finish();
    return {};
}

LogFilter::Out log_printer(Context& context) {
    return [&context](std::string_view bytes) {
        if (context.global.json) {
            context.terminal.err(bytes);
        } else {
            context.terminal.out(bytes);
        }
    };
}

}  // namespace gdnctl
