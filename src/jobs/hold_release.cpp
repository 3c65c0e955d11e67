#include <algorithm>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/log.h"
#include "jobs/given_up.h"
#include "jobs/hold_heart.h"
#include "jobs/hold_host.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "platform/signals.h"
#include "services/devtpu/names.h"

namespace gdnctl {

using devtpu::HoldRecord;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr seconds k_end_runs_limit{8};
constexpr seconds k_close_limit{3};

// Programs on the host are not part of the holder's job, so stopping the job would leave them running.
void end_runs(const HoldRecord& record, Context& context) {
    const auto road = road_of(record, context);
    if (!road) return;
    const auto ended = devtpu::ask_host(*road, devtpu::end_line(record.submission_id + "."), {}, k_end_runs_limit,
                                        context.process, context.stop);
    if (!ended) log::debug("{}", ended.error().text());
}

void close_ssh(const HoldRecord& record, Context& context) {
    if (!record.ssh_ok.value_or(false) || record.cluster == "local") return;
    ProcessSpec spec;
    spec.argv = {"ssh"};
    const auto options = ssh_options(record, context);
    spec.argv.insert(spec.argv.end(), options.begin(), options.end());
    spec.argv.insert(spec.argv.end(), {"-O", "exit", devtpu::ssh_alias(record.tpu_name)});
    spec.wall_limit = k_close_limit;
    const auto closed = context.process.run(spec);
    if (!closed) log::debug("{}", closed.error().text());
}

Error may_be_held(const HoldRecord& record, std::string_view why) {
    return {ErrorKind::infrastructure,
            fmt::format("dev TPU {} on {} may still be held: {}", record.tpu_name, hold_place_words(record), why),
            fmt::format("the hold ends when its lease expires, at the latest at {}",
                        local_clock(devtpu::lease_end(record.terms, record.created, record.renewed))),
            {}};
}

// Repeats the stop request until it is accepted, and waits for the end. `pending`: the job is still waiting and will be
// stopped once it starts.
Status stop_holder(const HoldRecord& record, JobBackend& backend, milliseconds limit, Context& context) {
    const auto deadline = context.clock.monotonic() + limit;
    backend.set_deadline(deadline);
    const auto stopped = backend.stop(record.submission_id);
    if (!stopped && stopped.error().kind == ErrorKind::remote_missing) return {};
    if (!stopped) {
        const bool access = stopped.error().kind == ErrorKind::authentication;
        Error error = may_be_held(record, stopped.error().text());
        if (access) error.kind = ErrorKind::authentication;
        return tl::unexpected(std::move(error));
    }
    for (;;) {
        const auto job = backend.poll(record.submission_id);
        const bool gone = !job && job.error().kind == ErrorKind::remote_missing;
        if (gone || (job && is_terminal(job->state))) return {};
        if (job && job->state == JobState::pending) {
            remember_given_up(backend, record.submission_id, context);
            log::info("job {} still waits in the queue: it is stopped when it starts", record.submission_id);
            return {};
        }
        if (context.clock.monotonic() >= deadline) {
            return tl::unexpected(
                may_be_held(record, fmt::format("its holder did not end within {}", format_duration(limit))));
        }
        context.clock.sleep_for(milliseconds(100), context.stop);
    }
}

}  // namespace

Status release_hold(const HoldRecord& record, JobBackend& backend, milliseconds limit, Context& context) {
    end_runs(record, context);
    const Status stopped = stop_holder(record, backend, limit, context);
    close_ssh(record, context);
    if (!stopped) return stopped;
    return forget_hold(record, context);
}

Holding::Holding(HoldRecord record, std::unique_ptr<JobBackend> backend, Context& context)
    : m_record(std::move(record)), m_backend(std::move(backend)), m_context(context) {}

Holding::~Holding() = default;

std::optional<Error> Holding::lost() {
    const auto job = m_backend->poll(m_record.submission_id);
    if (!job && job.error().kind == ErrorKind::remote_missing) {
        return hold_vanished(m_record);
    }
    if (!job || !is_terminal(job->state)) return std::nullopt;
    return hold_over(m_record, *job, read_holder(*m_backend, m_record.submission_id).end());
}

Error Holding::wait() {
    const milliseconds pause = m_backend->name() == "local" ? milliseconds(250) : milliseconds(2000);
    for (;;) {
        if (auto over = lost()) return std::move(*over);
        if (!m_context.clock.sleep_for(pause, m_context.stop)) return stopped_error();
    }
}

Status Holding::release(milliseconds limit) {
    m_heart.reset();
    m_backend->ignore_stop_requests();
    Context patient = without_stop(m_context);
    return release_hold(m_record, *m_backend, limit, patient);
}

}  // namespace gdnctl
