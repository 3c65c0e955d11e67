#include "jobs/lease_renewer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/log.h"
#include "platform/clock.h"
#include "platform/machine.h"
#include "platform/signals.h"
#include "services/devtpu/holder.h"

namespace gdnctl {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds k_again{5000};
constexpr seconds k_job_limit{60};
constexpr seconds k_before_removal{5};  // a cluster shows a job removed earlier than this as a ghost

void note_renewal(const devtpu::HoldRecord& record, const Context& context) {
    const Status kept = devtpu::HoldStore(context.state_dir).renewed(record.submission_id, context.clock.wall());
    if (!kept) log::debug("{}", kept.error().text());
}

Result<JobDetails> wait_for_renewal(JobBackend& backend, const std::string& id, Clock& clock, std::stop_token stop) {
    const auto deadline = clock.monotonic() + k_job_limit;
    for (;;) {
        auto job = backend.poll(id);
        if (job && is_terminal(job->state)) return job;
        if (clock.monotonic() >= deadline) {
            if (!job) return job;
            return fail(ErrorKind::infrastructure,
                        fmt::format("job {} has not run for {}", id, format_duration(k_job_limit)));
        }
        if (!clock.sleep_for(milliseconds(500), stop)) return tl::unexpected(stopped_error());
    }
}

// Renewals by jobs next to the holder. A job is removed once that no longer leaves a ghost; renewals do not wait for
// it.
class RenewalJobs {
public:
    explicit RenewalJobs(std::unique_ptr<JobBackend> backend, Context& context)
        : m_backend(std::move(backend)), m_context(context) {}
    RenewalJobs(const RenewalJobs&) = delete;
    RenewalJobs& operator=(const RenewalJobs&) = delete;
    ~RenewalJobs() { remove_ended(); }

    // Takes as long as the job does.
    Status renew(const devtpu::HoldRecord& record, const std::string& run, const std::stop_token& stop) {
        JobRequest job = devtpu::heartbeat_job(record.submission_id,
                                               record.submission_id.substr(0, 80) + "-hb-" + random_hex(8), run);
        job.metadata["nonce"] = random_hex(16);
        job.metadata["user"] = record.user;
        GDNCTL_TRY_ASSIGN(const Submitted submitted, m_backend->submit(job));
        GDNCTL_TRY_ASSIGN(const JobDetails end, wait_for_renewal(*m_backend, job.submission_id, m_context.clock, stop));
        if (end.state != JobState::succeeded) {
            return fail(ErrorKind::infrastructure, "the job that renews the lease " + std::string(status_of(end)));
        }
        note_renewal(record, m_context);
        m_ended.emplace_back(job.submission_id, m_context.clock.monotonic());
        remove_ended();
        return {};
    }

private:
    void remove_ended() {
        const auto before = m_context.clock.monotonic() - k_before_removal;
        std::erase_if(m_ended, [&](const auto& job) {
            if (job.second > before) return false;
            if (const Status removed = m_backend->remove(job.first); !removed) log::debug("{}", removed.error().text());
            return true;
        });
    }

    std::unique_ptr<JobBackend> m_backend;
    Context& m_context;
    std::vector<std::pair<std::string, Clock::Monotonic>> m_ended;
};

// Uses the connection while it works, else jobs.
class Renewal {
public:
    Renewal(devtpu::HoldRecord record, DestinationOptions options, Context& context, std::string run)
        : m_record(std::move(record)), m_options(std::move(options)), m_context(context), m_run(std::move(run)) {}

    Status open_jobs() {
        if (m_jobs) return {};
        GDNCTL_TRY_ASSIGN(auto opened, open_backend(destination_of_hold(m_record, m_options), false, m_context));
        m_jobs = std::make_unique<RenewalJobs>(std::move(opened), m_context);
        return {};
    }

    Status renew(const std::stop_token& stop) {
        const auto connection = connection_of(m_record, m_context);
        Status renewed_by_connection;
        if (connection) {
            renewed_by_connection = renew_by_connection(m_record, *connection, m_run, m_context, stop);
            if (renewed_by_connection && m_by_jobs) log::info("the lease is renewed by ssh again");
            m_by_jobs = m_by_jobs && !renewed_by_connection;
            // A missing lease file on the host means that the hold has ended.
            const bool final = renewed_by_connection || connection->is_local() ||
                               renewed_by_connection.error().kind == ErrorKind::remote_missing;
            if (final || stop.stop_requested()) return renewed_by_connection;
        }
        if (const Status opened = open_jobs(); !opened) return connection ? renewed_by_connection : opened;
        const Status by_job = m_jobs->renew(m_record, m_run, stop);
        if (!by_job || !connection) return by_job;
        if (!m_by_jobs)
            log::warning("{}: jobs on the holder's host renew the lease", renewed_by_connection.error().text());
        m_by_jobs = true;
        return {};
    }

private:
    devtpu::HoldRecord m_record;
    DestinationOptions m_options;
    Context& m_context;
    std::string m_run;
    std::unique_ptr<RenewalJobs> m_jobs;
    bool m_by_jobs = false;  // although there is a connection
};

}  // namespace

LeaseRenewer::LeaseRenewer(Renew renew, milliseconds interval, Clock& clock)
    : m_thread([renew = std::move(renew), interval, &clock](std::stop_token stop) {
          bool failing = false;
          for (;;) {
              const Status renewed = renew(stop);
              if (stop.stop_requested()) return;
              if (!renewed && !failing) log::warning("cannot renew the lease: {}", renewed.error().text());
              if (renewed && failing) log::info("the lease is renewed again");
              failing = !renewed;
              if (!clock.sleep_for(failing ? std::min(interval, k_again) : interval, stop)) return;
          }
      }) {}

Status renew_by_connection(const devtpu::HoldRecord& record, const devtpu::HostConnection& connection,
                           std::string_view run, Context& context, std::stop_token stop) {
    constexpr seconds k_shortest{4}, k_longest{25};
    const auto limit = std::clamp(seconds(record.terms.lease_s) / 4, k_shortest, k_longest);
    GDNCTL_TRY(devtpu::touch_lease(connection, run, limit, context.process, std::move(stop)));
    note_renewal(record, context);
    return {};
}

Result<std::unique_ptr<LeaseRenewer>> start_renewing(const devtpu::HoldRecord& record,
                                                     const DestinationOptions& options, Context& context,
                                                     std::string run) {
    if (record.submission_id.empty()) return std::unique_ptr<LeaseRenewer>();  // another program's hold has no lease
    auto renewal = std::make_shared<Renewal>(record, options, context, std::move(run));
    if (!connection_of(record, context)) GDNCTL_TRY(renewal->open_jobs());
    return std::make_unique<LeaseRenewer>([renewal](const std::stop_token& stop) { return renewal->renew(stop); },
                                          devtpu::heartbeat_interval(record.terms), context.clock);
}

}  // namespace gdnctl
