#include "jobs/stop.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/json.h"
#include "core/log.h"
#include "core/time.h"
#include "jobs/watch.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/journal.h"

namespace gdnctl {

namespace {

constexpr std::chrono::seconds k_patience{10};
constexpr std::size_t k_most = 20;  // jobs handled by one command

std::filesystem::path journal_path(const Context& context) { return context.state_dir / "given_up.jsonl"; }

std::string place_key(const JobBackend& backend) {
    return backend.name() + " " + (backend.cluster().empty() ? backend.address() : backend.cluster());
}

Status append(const Json& record, const Context& context) {
    GDNCTL_TRY(make_private_directory(context.state_dir));
    GDNCTL_TRY_ASSIGN(Journal journal, Journal::open(journal_path(context), {k_patience, &context.clock, {}}));
    return journal.append(to_text(record));
}

Json record_of(const JobBackend& backend, std::string_view id, const char* event, const Context& context) {
    Json record;
    record["time"] = format_iso8601(context.clock.wall());
    record["event"] = event;
    record["submission_id"] = std::string(id);
    record["place"] = place_key(backend);
    return record;
}

std::vector<std::string> open_ids(const JobBackend& backend, const Context& context) {
    const auto journal = read_journal(journal_path(context));
    if (!journal) return {};
    std::map<std::string, bool> open;
    for (const std::string& line : journal->records) {
        const auto record = parse_json(line, "given_up.jsonl");
        if (!record || !record->is_object() || json::text(*record, "place") != place_key(backend)) continue;
        open[json::text(*record, "submission_id")] = json::text(*record, "event") == "given_up";
    }
    std::vector<std::string> ids;
    for (const auto& [id, is_open] : open) {
        if (is_open && ids.size() < k_most) ids.push_back(id);
    }
    return ids;
}

}  // namespace

void remember_given_up(const JobBackend& backend, std::string_view id, Context& context) {
    const Status written = append(record_of(backend, id, "given_up", context), context);
    if (!written) log::warning("cannot record job {} as given up: {}", id, written.error().text());
}

void see_to_given_up(JobBackend& backend, Context& context) {
    for (const std::string& id : open_ids(backend, context)) {
        if (context.stop.stop_requested()) return;
        const auto job = backend.poll(id);
        const bool gone = !job && job.error().kind == ErrorKind::remote_missing;
        if (gone || (job && is_terminal(job->state))) {
            if (!append(record_of(backend, id, "ended", context), context)) return;
            continue;
        }
        if (!job) return;  // unreachable: the next command tries again
        if (job->state != JobState::running) continue;
        log::info("job {} was given up and has started since: stopping it", id);
        if (const auto stopped = backend.stop(id); !stopped) log::warning("{}", stopped.error().text());
    }
}

std::optional<std::string> remembered_session(std::string_view id, const Context& context) {
    const auto journal = read_journal(context.state_dir / "jobs.jsonl");
    if (!journal) return std::nullopt;
    for (auto it = journal->records.rbegin(); it != journal->records.rend(); ++it) {
        if (it->find(id) == std::string::npos) continue;
        const auto record = parse_json(*it, "jobs.jsonl");
        if (record && record->is_object() && json::text(*record, "submission_id") == id) {
            return json::text(*record, "session");
        }
    }
    return std::nullopt;
}

namespace {

// A waiting job is stopped only after it has started.
void remember_unless_over(const JobBackend& backend, const JobDetails& details, Context& context) {
    if (details.state != JobState::pending) return;
    log::info("job {} is still waiting; this machine's next gdnctl command on the cluster stops it when it starts",
              details.submission_id);
    remember_given_up(backend, details.submission_id, context);
}

Result<JobDetails> wait_for_end(JobBackend& backend, const std::string& id, const StopOptions& options,
                                Context& context) {
    WatchOptions watch;
    watch.poll = std::max(std::chrono::milliseconds(200), backend.pace().log);
    watch.timeout = options.patience;
    watch.whole_messages = false;
    watch.submitted = true;
    auto watched = wait_for_job(backend, id, watch, context);
    if (watched && !watched->timed_out) return std::move(watched->details);
    if (watched || watched.error().kind != ErrorKind::remote_missing) remember_given_up(backend, id, context);
    if (!watched) return tl::unexpected(std::move(watched).error());
    return fail(ErrorKind::timeout,
                "job " + id + " has not ended within " + format_duration(*options.patience) + " of being stopped");
}

}  // namespace

Result<StoppedJob> stop_job(JobBackend& backend, const std::string& id, const StopOptions& options, Context& context) {
    StoppedJob job;
    GDNCTL_TRY_ASSIGN(job.stopped, backend.stop(id));
    GDNCTL_TRY_ASSIGN(job.details, backend.details(id));
    if (job.stopped) {
        log::info("Job {} stop requested", id);
    } else {
        log::info("Job {} had already ended ({})", id, status_of(job.details));
    }
    if (!is_terminal(job.details.state)) {
        if (!options.wait) {
            remember_unless_over(backend, job.details, context);
        } else {
            GDNCTL_TRY_ASSIGN(job.details, wait_for_end(backend, id, options, context));
        }
    }
    see_to_given_up(backend, context);
    return job;
}

}  // namespace gdnctl
