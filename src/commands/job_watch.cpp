#include "commands/job_watch.h"

#include <algorithm>

#include "gdnctl/core/log.h"
#include "gdnctl/platform/clock.h"
#include "gdnctl/platform/signals.h"
#include "gdnctl/platform/terminal.h"

namespace gdnctl::commands {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds k_follow_interval{200};
constexpr std::chrono::minutes k_patience{10};  // with a backend that does not answer

// Asks for a job's details, bearing with a backend that is out of reach for a while.
class Poller {
public:
    Poller(JobBackend& backend, std::string_view id, Context& context)
        : m_backend(backend), m_id(id), m_context(context), m_answered(context.clock.monotonic()) {}

    // nullopt: no answer this time.
    Result<std::optional<JobDetails>> ask() {
        auto details = m_backend.details(m_id);
        if (details) {
            m_seen = true;
            m_answered = m_context.clock.monotonic();
            return std::optional(std::move(*details));
        }
        const ErrorKind kind = details.error().kind;
        if (kind == ErrorKind::remote_missing && m_seen) {
            return fail(ErrorKind::infrastructure, "the record of job " + std::string(m_id) + " has vanished");
        }
        const bool passing = kind == ErrorKind::infrastructure || kind == ErrorKind::timeout;
        if (!passing || m_context.clock.monotonic() - m_answered > k_patience) {
            return tl::unexpected(std::move(details).error());
        }
        log::warning("{}; trying again", details.error().text());
        return std::nullopt;
    }

private:
    JobBackend& m_backend;
    std::string_view m_id;
    Context& m_context;
    bool m_seen = false;
    Clock::Monotonic m_answered;
};

class StatusLines {
public:
    StatusLines(Context& context, bool whole) : m_context(context), m_whole(whole) {}
    void show(const JobDetails& now) {
        if (m_shown && m_last == std::pair(now.state, now.message)) return;
        m_shown = true;
        m_last = {now.state, now.message};
        print_status(m_context, now, m_whole);
    }

private:
    Context& m_context;
    bool m_whole;
    bool m_shown = false;
    std::pair<JobState, std::string> m_last;
};

// Sleeps at most until the deadline. False: stopped.
bool pause(Context& context, milliseconds interval, const std::optional<Clock::Monotonic>& deadline) {
    if (deadline) {
        const auto left = std::chrono::ceil<milliseconds>(*deadline - context.clock.monotonic());
        interval = std::clamp(interval, milliseconds(0), std::max(left, milliseconds(0)));
    }
    return context.clock.sleep_for(interval, context.stop) && !context.stop.stop_requested();
}

// A job of which nothing was heard.
JobDetails unknown(std::string_view id) {
    JobDetails details;
    details.submission_id = id;
    return details;
}

std::optional<Clock::Monotonic> deadline_of(const WatchOptions& options, const Context& context) {
    if (!options.timeout) return std::nullopt;
    return context.clock.monotonic() + *options.timeout;
}

}  // namespace

void print_status(Context& context, const JobDetails& details, bool whole_message) {
    if (context.global.quiet) return;
    std::string_view message = details.message;
    // The excerpt that a failed job's message ends with is what the reader has just seen.
    if (!whole_message)
        message = message.substr(0, std::min(message.find('\n'), message.find(", last available logs")));
    while (message.ends_with('\n')) message.remove_suffix(1);
    context.terminal.err("[" + format_log_time(context.clock.wall()) + "] " + details.submission_id +
                         " status=" + std::string(to_text(details.state)) + " " + std::string(message) + "\n");
}

Result<Watched> wait_for_job(JobBackend& backend, std::string_view id, const WatchOptions& options, Context& context) {
    Poller poller(backend, id, context);
    StatusLines lines(context, options.whole_messages);
    const auto deadline = deadline_of(options, context);
    std::optional<JobDetails> last;
    for (;;) {
        GDNCTL_TRY_ASSIGN(auto now, poller.ask());
        if (now) {
            lines.show(*now);
            if (is_terminal(now->state)) return Watched{std::move(*now), false};
            last = std::move(now);
        }
        if (deadline && context.clock.monotonic() >= *deadline) {
            return Watched{last.value_or(unknown(id)), true};
        }
        if (!pause(context, options.poll, deadline)) return tl::unexpected(stopped_error());
    }
}

Result<Watched> follow_job(JobBackend& backend, std::string_view id, JobLog& log, const WatchOptions& options,
                           const std::function<void(std::string_view)>& sink, Context& context) {
    Poller poller(backend, id, context);
    StatusLines lines(context, options.whole_messages);
    const auto deadline = deadline_of(options, context);
    const auto drain = [&]() -> Status {
        GDNCTL_TRY(log.pump([&](std::string_view bytes) {
            sink(bytes);
            return !context.stop.stop_requested();
        }));
        if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
        return {};
    };
    for (;;) {
        GDNCTL_TRY_ASSIGN(auto now, poller.ask());
        // The state was read first: what a job wrote before it ended is in the log by now.
        GDNCTL_TRY(drain());
        GDNCTL_TRY(context.terminal.flush());
        const bool over = deadline && context.clock.monotonic() >= *deadline;
        if (now) lines.show(*now);
        if (now && (is_terminal(now->state) || over)) return Watched{std::move(*now), !is_terminal(now->state)};
        if (context.terminal.out_closed()) {
            return Watched{now.value_or(unknown(id)), false};
        }
        if (!pause(context, std::min(options.poll, k_follow_interval), deadline)) {
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

}  // namespace gdnctl::commands
