#include "sweep/job_place.h"

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "jobs/hold.h"
#include "jobs/watch.h"
#include "platform/clock.h"
#include "platform/signals.h"
#include "services/job/output.h"

namespace gdnctl::sweep {

namespace {

constexpr std::chrono::seconds k_stop_patience{60};
constexpr std::size_t k_kept_log = std::size_t{32} << 20;  // of one run; the end of a longer one

class Jobs {
public:
    Jobs(JobBackend& backend, const JobPlaceOptions& options, Context& context)
        : m_backend(backend), m_options(options), m_context(context) {}

    Result<RunOutput> run(const std::vector<std::string>& argv, double limit_s,
                          const std::function<Status(JournalEvent)>& on_start) {
        GDNCTL_TRY_ASSIGN(const JobRequest request, request_of(argv));
        JournalEvent where;
        where.submission_id = request.submission_id;
        where.cluster = m_backend.cluster();
        where.tpu_name = m_options.tpu_name;
        GDNCTL_TRY(on_start(std::move(where)));
        const auto start = m_context.clock.monotonic();
        RunOutput output;
        const auto submitted = m_backend.submit(request);
        if (!submitted) {
            if (submitted.error().kind != ErrorKind::infrastructure) return tl::unexpected(submitted.error());
            output.lost = true;
            output.lost_because = submitted.error().text();
        } else {
            GDNCTL_TRY(follow(request.submission_id, limit_s, output));
        }
        output.wall_s = std::chrono::duration<double>(m_context.clock.monotonic() - start).count();
        return output;
    }

    Status settle(const JournalEvent& start) {
        if (start.submission_id.empty()) return {};
        std::unique_ptr<JobBackend> other;
        if (start.cluster != m_backend.cluster()) {
            PlaceOptions place;
            place.cluster = start.cluster;
            GDNCTL_TRY_ASSIGN(other, open_backend(place, false, m_context));
        }
        JobBackend& backend = other ? *other : m_backend;
        const auto details = backend.details(start.submission_id);
        if (!details && details.error().kind == ErrorKind::remote_missing) return {};
        if (!details) return tl::unexpected(details.error());
        if (is_terminal(details->state)) return {};
        log::info("run {} of {} was still running: stopping job {}", start.run, start.label, start.submission_id);
        return end(backend, start.submission_id, m_context);
    }

private:
    Result<JobRequest> request_of(const std::vector<std::string>& argv) {
        std::vector<std::string> words = argv;
        if (words.front() == "gdnctl" && m_backend.name() == "local") words.front() = m_context.program;
        JobPlan plan;
        plan.kind = "sweep";
        plan.target = m_options.name;
        plan.command.entrypoint = text::shell_join(words);
        const auto root = project_root(m_context);
        const auto folder = m_context.cwd.lexically_normal().lexically_relative(root.lexically_normal());
        if (!folder.empty() && folder != "." && *folder.begin() != "..") {
            plan.command.workdir = folder.string();
            plan.command.entrypoint = "cd " + text::shell_quote(folder.string()) + " && " + plan.command.entrypoint;
        }
        if (m_backend.name() != "local") {
            plan.command.env.assign(m_options.switches.begin(), m_options.switches.end());
        }
        plan.command.resources = m_options.resources;
        plan.beside = m_options.beside;
        return request_for(plan, {}, m_backend.name() != "local", m_context);
    }

    // Stops it and waits until it has ended.
    static Status end(JobBackend& backend, const std::string& id, Context& context) {
        GDNCTL_TRY(backend.stop(id));
        WatchOptions watch;
        watch.poll = std::chrono::milliseconds(100);
        watch.timeout = k_stop_patience;
        watch.submitted = true;
        watch.quiet = true;
        GDNCTL_TRY_ASSIGN(const Watched ended, wait_for_job(backend, id, watch, context));
        if (!ended.timed_out) return {};
        return fail(ErrorKind::infrastructure, fmt::format("job {} does not end", id),
                    "stop it with `gdnctl ray-stop`, then run the sweep again: two runs must not overlap");
    }

    Status follow(const std::string& id, double limit_s, RunOutput& output) {
        GDNCTL_TRY_ASSIGN(const auto log, m_backend.open_log(id, {.follow = true}));
        WatchOptions watch;
        watch.submitted = true;
        watch.quiet = true;
        watch.needs_log = true;
        watch.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(limit_s * 1000));
        const auto keep = [&](std::string_view bytes) {
            output.text += bytes;
            if (output.text.size() > 2 * k_kept_log) output.text.erase(0, output.text.size() - k_kept_log);
        };
        auto watched = follow_job(m_backend, id, *log, watch, keep, m_context);
        if (!watched) {
            Error error = std::move(watched).error();
            if (error.kind == ErrorKind::interrupted || error.kind == ErrorKind::terminated) {
                m_backend.ignore_stop_requests();
                Context patient = without_stop(m_context);
                if (const Status ended = end(m_backend, id, patient); !ended) log::warning("{}", ended.error().text());
                return tl::unexpected(std::move(error));
            }
            if (error.kind != ErrorKind::infrastructure) return tl::unexpected(std::move(error));
            output.lost = true;
            output.lost_because = error.text();
            // What cannot be heard of may still run.
            if (const Status ended = end(m_backend, id, m_context); !ended) log::warning("{}", ended.error().text());
            return {};
        }
        if (watched->timed_out) {
            output.timed_out = true;
            // Machines that are not to be had say nothing of a configuration.
            output.lost = watched->details.state == JobState::pending;
            output.lost_because = "PENDING until the time limit";
            return end(m_backend, id, m_context);
        }
        const JobVerdict verdict = classify(watched->details, output.text);
        const auto code = watched->details.driver_exit_code;
        output.lost = verdict.failure == FailureClass::infra || verdict.failure == FailureClass::stopped;
        if (output.lost) output.lost_because = watched->details.message;
        // A failure is classified by its log; without one, nothing is known of the configuration.
        if (!output.lost && !watched->log_complete) {
            output.lost = true;
            output.lost_because = "its log could not be read";
        }
        if (watched->details.state == JobState::succeeded) {
            output.exit_code = 0;
        } else if (code && *code > 0) {
            output.exit_code = *code;
        }
        return {};
    }

    JobBackend& m_backend;
    const JobPlaceOptions m_options;
    Context& m_context;
};

}  // namespace

Place job_place(JobBackend& backend, const JobPlaceOptions& options, Context& context) {
    const auto jobs = std::make_shared<Jobs>(backend, options, context);
    Place place;
    place.run = [jobs](const std::vector<std::string>& argv, double limit_s,
                       const std::function<Status(JournalEvent)>& on_start) {
        return jobs->run(argv, limit_s, on_start);
    };
    place.rest = [&context](std::chrono::milliseconds pause) -> Status {
        if (!context.clock.sleep_for(pause, context.stop)) return tl::unexpected(stopped_error());
        return {};
    };
    place.settle = [jobs](const JournalEvent& start) { return jobs->settle(start); };
    return place;
}

}  // namespace gdnctl::sweep
