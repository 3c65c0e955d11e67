#include "jobs/hold.h"

#include <random>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/hold_host.h"
#include "jobs/lease_renewer.h"
#include "jobs/run.h"
#include "jobs/stop.h"
#include "jobs/submit.h"
#include "jobs/target_job.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/lock.h"
#include "platform/machine.h"
#include "platform/process.h"
#include "platform/signals.h"
#include "services/devtpu/holder.h"
#include "services/devtpu/ssh_config.h"

namespace gdnctl {

using devtpu::HoldRecord;

bool is_hold(const JobDetails& job) {
    return hold_word(job, "kind") == devtpu::k_hold_kind && !is_terminal(job.state) &&
           !hold_word(job, "tpu_name").empty();
}

std::string hold_word(const JobDetails& job, const char* key) {
    const auto it = job.metadata.find(key);
    return it == job.metadata.end() ? std::string() : it->second;
}

HoldRecord hold_of(const JobDetails& job, const JobBackend& backend) {
    HoldRecord record;
    record.kind = backend.kind();
    record.tpu_name = hold_word(job, "tpu_name");
    record.tpu_type = hold_word(job, "tpu_type");
    record.cluster = backend.cluster();
    record.address = backend.address();
    record.submission_id = job.submission_id;
    record.nonce = hold_word(job, "nonce");
    record.user = hold_word(job, "user");
    record.terms = devtpu::terms_of(job.metadata);
    record.created = job.start_time.value_or(WallTime{});
    record.state = job.state == JobState::running ? "running" : "pending";
    return record;
}

devtpu::HolderLog read_holder(JobBackend& backend, std::string_view id) {
    devtpu::HolderLog found;
    const auto log = backend.open_log(id, {});
    if (!log) return found;
    const auto read = (*log)->pump([&](std::string_view bytes) {
        found.feed(bytes);
        return true;
    });
    if (!read) log::debug("{}", read.error().text());
    return found;
}

Error hold_over(const HoldRecord& record, const JobDetails& job, const std::optional<devtpu::HoldEnd>& end) {
    const std::string what = fmt::format("dev TPU {} on {}", record.tpu_name, hold_place_words(record));
    const bool taken = job.state == JobState::failed && job.message.find(": Preempted ") != std::string::npos;
    if (end == devtpu::HoldEnd::preempted || taken) {
        return {
            ErrorKind::infrastructure, what + " was preempted: its machine was taken away", "allocate it again", {}};
    }
    if (end == devtpu::HoldEnd::max_hold) {
        return {ErrorKind::timeout,
                fmt::format("{} has reached its cap of {}", what,
                            format_duration(std::chrono::seconds(record.terms.max_hold_s))),
                "`gdnctl dev-tpu-allocate --max-hold` sets a higher cap",
                {}};
    }
    if (end == devtpu::HoldEnd::lease) {
        return {ErrorKind::infrastructure,
                what + " was released: its lease was not renewed in time",
                "`gdnctl dev-tpu-allocate --lease` sets a longer lease",
                {}};
    }
    // A holder that has succeeded without a word was completed by someone.
    if (end == devtpu::HoldEnd::stop || job.state == JobState::stopped || job.state == JobState::succeeded) {
        return {ErrorKind::nothing_done, what + " was released by another command", {}, {}};
    }
    return {ErrorKind::infrastructure,
            fmt::format("{} is lost: its holder {} ({})", what, status_of(job), job.message),
            "allocate it again",
            {}};
}

Error hold_vanished(const HoldRecord& record) {
    return {ErrorKind::infrastructure,
            fmt::format("dev TPU {} is lost: {} no longer knows its job", record.tpu_name, hold_place_words(record)),
            "allocate it again",
            {}};
}

DestinationOptions destination_of_hold(const HoldRecord& record, const DestinationOptions& options) {
    if (options.given()) return options;
    DestinationOptions place = options;
    if (!record.iris_url.empty()) {
        place.iris_url = record.iris_url;
    } else if (record.cluster.empty() || !record.ray_address.empty()) {
        place.ray_address = record.ray_address;
    }
    if (record.cluster.ends_with(".yaml")) {
        place.cluster_config = record.cluster;
    } else if (!record.cluster.empty()) {
        place.cluster = record.cluster;
    }
    return place;
}

Context without_stop(const Context& context) {
    return {context.env, context.clock, context.terminal,  context.config,  context.process, context.http,
            {},          context.cwd,   context.state_dir, context.program, context.global};
}

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// The cluster that the options name, as in records; nullopt: they name none.
std::optional<std::string> named_cluster(const DestinationOptions& options) {
    if (options.cluster_config) return *options.cluster_config;
    return options.cluster;
}

// How later commands reach the place of the hold.
void keep_address(HoldRecord& record, const DestinationOptions& options) {
    record.ray_address = options.ray_address.value_or(record.ray_address);
    record.iris_url = options.iris_url.value_or(record.iris_url);
}

// Asks the place for this user's hold with this name.
Result<std::optional<HoldRecord>> ask_for_hold(const std::string& name, const DestinationOptions& options,
                                               Context& context) {
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options, true, context));
    const std::string user = submitter(*backend, context.env);
    GDNCTL_TRY_ASSIGN(const auto jobs, backend->list({user, std::string(devtpu::k_hold_part)}));
    for (const JobDetails& job : jobs) {
        if (!is_hold(job) || job.state != JobState::running || hold_word(job, "tpu_name") != name ||
            hold_word(job, "user") != user) {
            continue;
        }
        HoldRecord record = hold_of(job, *backend);
        keep_address(record, options);
        const auto log = read_holder(*backend, job.submission_id);
        if (log.host()) record.host = *log.host();
        if (backend->hosts_have_ssh()) reach_host(record, "", context);
        if (Status kept = devtpu::HoldStore(context.state_dir).put(record); !kept) {
            return tl::unexpected(std::move(kept).error());
        }
        return std::optional(std::move(record));
    }
    return std::nullopt;
}

constexpr seconds k_end_runs_limit{8};
constexpr seconds k_close_limit{3};

// The same where the host has no ssh: a job beside the holder ends the others.
void end_runs_beside(const HoldRecord& record, JobBackend& backend, Context& context) {
    JobRequest job;
    job.submission_id = record.submission_id.substr(0, 80) + "-end-" + random_hex(8);
    job.beside = record.submission_id;
    job.entrypoint = devtpu::end_line(record.submission_id + ".");
    const auto deadline = context.clock.monotonic() + k_end_runs_limit;
    auto submitted = backend.submit(job);
    while (submitted && context.clock.monotonic() < deadline) {
        const auto now = backend.poll(job.submission_id);
        if (!now || is_terminal(now->state) || !context.clock.sleep_for(milliseconds(100), context.stop)) return;
    }
}

// Programs on the host are not part of the holder's job, so stopping the job would leave them running.
void end_runs(const HoldRecord& record, JobBackend& backend, Context& context) {
    const auto connection = connection_of(record, context);
    if (!connection && !backend.hosts_have_ssh() && record.state != "pending") {
        return end_runs_beside(record, backend, context);
    }
    if (!connection) return;
    const auto ended = devtpu::ask_host(*connection, devtpu::end_line(record.submission_id + "."), {}, k_end_runs_limit,
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
            remember_pending_stop(backend, record.submission_id, context);
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

// A cluster without ssh misses no SSH configuration.
Error not_held(const std::string& name, const DestinationOptions& options, Context& context) {
    Error error = devtpu::not_held(name);
    const auto place = choose_destination(options, context);
    if (!place || place->kind != PlaceKind::iris) return error;
    const JobPlace where{std::string(to_text(place->kind)), place->cluster, address_text(*place), {}};
    error.message =
        fmt::format("no TPU is held under the name {0}; run `gdnctl dev-tpu-allocate{1} --tpu-name {0}` first", name,
                    cluster_words(where));
    return error;
}

constexpr seconds k_marker_limit{60};
constexpr seconds k_quick_polls{10};
constexpr seconds k_submit_limit{60};
constexpr milliseconds k_quick_poll{250}, k_slow_poll{2000};
constexpr std::size_t k_shown_log = 4000;

ErrorKind kind_of(ExitCode exit) {
    switch (exit) {
        case ExitCode::usage: return ErrorKind::usage;
        case ExitCode::authentication: return ErrorKind::authentication;
        case ExitCode::nothing_done: return ErrorKind::nothing_done;
        default: return ErrorKind::infrastructure;
    }
}

}  // namespace

Result<FoundHold> find_hold(const std::string& name, const DestinationOptions& options, Context& context) {
    GDNCTL_TRY(devtpu::check_tpu_name(name));
    const auto cluster = named_cluster(options);
    const devtpu::HoldStore store(context.state_dir);
    GDNCTL_TRY_ASSIGN(auto record,
                      store.find(name, cluster, options.ray_address ? options.ray_address : options.iris_url));
    if (record) {
        DestinationOptions place = destination_of_hold(*record, options);
        if (record->state == "ready" && record->cluster != "local") return FoundHold{std::move(*record), place};
        // This machine answers at once.
        GDNCTL_TRY_ASSIGN(const auto backend, open_backend(place, true, context));
        const auto job = backend->poll(record->submission_id);
        if (job && job->state == JobState::running) return FoundHold{std::move(*record), place};
        if (job && is_terminal(job->state)) {
            GDNCTL_TRY(forget_hold(*record, context));
            const auto log = read_holder(*backend, record->submission_id);
            Error over = hold_over(*record, *job, log.end());
            over.kind = ErrorKind::infrastructure;
            over.hint = not_held(name, place, context).message;
            return tl::unexpected(std::move(over));
        }
    }
    auto asked = ask_for_hold(name, options, context);
    if (asked && *asked) {
        DestinationOptions place = destination_of_hold(**asked, options);
        return FoundHold{std::move(**asked), std::move(place)};
    }
    // Another program holds it and left its ssh configuration, which is enough.
    GDNCTL_TRY_ASSIGN(const auto config, read_file_if_exists(ssh_config_path(context)));
    if (config && devtpu::has_alias(*config, name)) {
        HoldRecord foreign;
        foreign.tpu_name = name;
        foreign.cluster = cluster.value_or("");
        foreign.alias = devtpu::ssh_alias(name);
        foreign.ssh_ok = true;
        return FoundHold{std::move(foreign), options};
    }
    return asked ? Result<FoundHold>(tl::unexpected(not_held(name, options, context)))
                 : Result<FoundHold>(tl::unexpected(std::move(asked).error()));
}

Json hold_view_json(const HoldView& view) {
    const HoldRecord& r = view.record;
    const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
    Json out;
    out["tpu_name"] = r.tpu_name;
    out["cluster"] = text(r.cluster);
    out["address"] = text(r.address);
    out["submission_id"] = r.submission_id;
    out["status"] = view.status;
    out["tpu_type"] = text(r.tpu_type);
    out["host"] = text(r.host.hostname);
    out["ip"] = text(r.host.reachable_ip());
    out["user"] = text(r.user);
    out["owner"] = view.mine ? "mine" : "other";
    out["created"] = format_iso8601(r.created);
    out["lease_ends"] = view.lease_ends ? Json(format_iso8601(*view.lease_ends)) : Json(nullptr);
    out["cap_ends"] = format_iso8601(devtpu::cap_end(r.terms, r.created));
    out["ssh_ok"] = r.ssh_ok ? Json(*r.ssh_ok) : Json(nullptr);
    return out;
}

Status release_hold(const HoldRecord& record, JobBackend& backend, milliseconds limit, Context& context) {
    end_runs(record, backend, context);
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
    if (!job && job.error().kind == ErrorKind::remote_missing) return hold_vanished(m_record);
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
    m_renewer.reset();
    m_backend->ignore_stop_requests();
    Context patient = without_stop(m_context);
    return release_hold(m_record, *m_backend, limit, patient);
}

// Gets from nothing to a hold that is ready. If that fails, it ends everything it has started.
class Allocation {
public:
    Allocation(const JobDestination& place, const DestinationOptions& options, const HoldPlan& plan, Context& context)
        : m_place(place),
          m_options(options),
          m_plan(plan),
          m_context(context),
          m_deadline(context.clock.monotonic() + plan.ready_timeout),
          m_store(context.state_dir) {}

    Result<std::unique_ptr<Holding>> run() {
        GDNCTL_TRY(devtpu::check_tpu_name(m_plan.tpu_name));
        GDNCTL_TRY(devtpu::check_terms(m_plan.terms));
        GDNCTL_TRY_ASSIGN(m_tpu, choose_hold_tpu(m_place, m_plan.tpu_type, m_context.env));
        GDNCTL_TRY_ASSIGN(m_backend, open_backend(m_place, m_options, m_context));
        retry_pending_stops(*m_backend, m_context);
        GDNCTL_TRY(wait_for_others_here());
        GDNCTL_TRY(look_for_another());
        if (!m_adopted) GDNCTL_TRY(submit_until_running());
        m_submitting.reset();
        Status ready = make_ready();
        if (!ready) {
            if (!m_adopted) give_up();
            return tl::unexpected(std::move(ready).error());
        }
        auto holding = std::make_unique<Holding>(std::move(m_record), std::move(m_backend), m_context);
        holding->m_renewer = std::move(m_renewer);
        holding->m_adopted = m_adopted;
        return holding;
    }

private:
    // On this machine the look and the submission are one step. Where the lock is not to be had, the looks after the
    // submission must do.
    Status wait_for_others_here() {
        GDNCTL_TRY(make_private_directory(m_context.state_dir));
        auto lock = FileLock::acquire(m_context.state_dir / "allocate.lock",
                                      {k_submit_limit, &m_context.clock, m_context.stop});
        if (lock) m_submitting.emplace(std::move(*lock));
        if (!lock && is_interruption(lock.error())) return tl::unexpected(lock.error());
        return {};
    }

    // Looks for a hold with this name; one of this user is taken over once it runs. It may have been requested a moment
    // ago, so a waiting one gets a little time.
    Status look_for_another() {
        const auto limit = m_context.clock.monotonic() + k_quick_polls;
        for (;;) {
            GDNCTL_TRY_ASSIGN(const auto job, first_hold());
            if (!job) return {};
            const std::string owner = hold_word(*job, "user");
            const bool mine = owner == submitter(*m_backend, m_context.env);
            if (mine && job->state == JobState::running) {
                m_record = hold_of(*job, *m_backend);
                keep_address(m_record, m_options);
                m_adopted = true;
                return {};
            }
            if (!mine) {
                return fail(ErrorKind::usage, fmt::format("dev TPU {} is held by {}", m_plan.tpu_name, owner),
                            "choose another --tpu-name");
            }
            if (m_context.clock.monotonic() >= limit) {
                return fail(ErrorKind::usage,
                            fmt::format("dev TPU {} was already requested by job {}, which is still waiting",
                                        m_plan.tpu_name, job->submission_id),
                            fmt::format("`gdnctl dev-tpu-release{} --tpu-name {}` releases it",
                                        cluster_words(*m_backend), m_plan.tpu_name));
            }
            if (!m_context.clock.sleep_for(k_quick_poll, m_context.stop)) return tl::unexpected(stopped_error());
        }
    }

    // The earliest hold with this name. Every client finds the same one.
    Result<std::optional<JobDetails>> first_hold() {
        GDNCTL_TRY_ASSIGN(const auto jobs, m_backend->list({{}, std::string(devtpu::k_hold_part)}));
        std::optional<JobDetails> first;
        for (const JobDetails& job : jobs) {
            if (!is_hold(job) || hold_word(job, "tpu_name") != m_plan.tpu_name) continue;
            const auto age = [](const JobDetails& one) {
                return std::pair(one.start_time.value_or(WallTime::max()), one.submission_id);
            };
            if (!first || age(job) < age(*first)) first = job;
        }
        return first;
    }

    // Two commands that saw no hold may both have submitted one: the later one gives way to the other. Looks after the
    // submission and again once the job runs, because a cluster may show jobs late.
    Result<bool> gives_way() {
        const auto first = first_hold();
        if (!first || !*first || (*first)->submission_id == m_record.submission_id) return false;
        log::info("{} was requested at the same time by job {}, which came first: job {} gives way", m_plan.tpu_name,
                  (*first)->submission_id, m_record.submission_id);
        give_up();
        GDNCTL_TRY(look_for_another());
        return true;
    }

    JobRequest holder_request() {
        std::random_device random;
        devtpu::HolderRequest holder;
        const std::string user = submitter(*m_backend, m_context.env);
        holder.submission_id =
            make_submission_id("hold", user + "-" + m_plan.tpu_name, m_context.clock.wall(), random());
        holder.tpu_name = m_plan.tpu_name;
        holder.tpu_type = m_tpu.type;
        holder.user = user;
        holder.host = host_name().value_or("unknown");
        holder.nonce = random_hex(16);
        holder.ssh_user = m_plan.ssh_user;
        holder.terms = m_plan.terms;
        holder.resources = m_tpu.resources;
        holder.start_timeout = m_plan.ready_timeout;
        if (const auto base = m_context.env.get(devtpu::k_metadata_variable); base && !base->empty()) {
            holder.metadata_base = *base;
        }
        m_record = {};
        m_record.nonce = holder.nonce;
        if (!m_place.is_local()) return devtpu::holder_job(holder);
        const auto folder = m_store.local_folder(m_plan.tpu_name);
        return devtpu::local_holder_job(holder, m_context.program, devtpu::local_lease(folder, holder.submission_id));
    }

    // Submits again when the cluster gives up waiting for the job, which then is at the end of the queue again.
    Status submit_until_running() {
        for (;;) {
            const JobRequest request = holder_request();
            if (m_place.is_local()) GDNCTL_TRY(make_private_directory(m_store.local_folder(m_plan.tpu_name)));
            const std::string& id = request.submission_id;
            m_record = record_of(request);
            GDNCTL_TRY(m_store.put(m_record));
            log::info("asking {} for {} as {}", hold_place_words(m_record),
                      m_tpu.type.empty() ? std::string("a device") : m_tpu.type, id);
            const auto submitted = m_backend->submit(request);
            m_submitting.reset();
            if (!submitted) {
                give_up();
                return tl::unexpected(submitted.error());
            }
            for (const std::string& warning : submitted->warnings) log::warning("{}", warning);
            if (submitted->submission_id != id) {
                GDNCTL_TRY(m_store.forget(id));
                m_record.submission_id = submitted->submission_id;
                GDNCTL_TRY(m_store.put(m_record));
            }
            GDNCTL_TRY_ASSIGN(bool gave_way, gives_way());
            if (gave_way && m_adopted) return {};
            if (gave_way) continue;
            GDNCTL_TRY_ASSIGN(const JobDetails job, wait_until_running());
            if (job.state == JobState::running) {
                GDNCTL_TRY_ASSIGN(gave_way, gives_way());
                if (gave_way && m_adopted) return {};
                if (gave_way) continue;
                m_record.created = m_context.clock.wall();  // the holder counts from its own start
                log::info("until its first renewal the hold ends at {} (grace {})",
                          local_clock(devtpu::lease_end(m_record.terms, m_record.created, std::nullopt)),
                          format_duration(seconds(m_record.terms.grace_s)));
                return {};
            }
            GDNCTL_TRY(forget_hold(m_record, m_context));
            if (job.error_type == job_error::k_start_timeout) {
                // A cluster that knows our limit gives up at the same time as we do.
                if (m_context.clock.monotonic() + seconds(1) >= m_deadline) return tl::unexpected(not_ready());
                log::warning("{} gave up waiting for the TPU: requesting it again", hold_place_words(m_record));
                continue;
            }
            const JobVerdict verdict = classify(job);
            return fail(kind_of(verdict.exit), fmt::format("the holder {}: {}", status_of(job), job.message));
        }
    }

    HoldRecord record_of(const JobRequest& request) const {
        JobDetails job;
        job.submission_id = request.submission_id;
        job.metadata = request.metadata;
        job.start_time = m_context.clock.wall();
        HoldRecord record = hold_of(job, *m_backend);
        keep_address(record, m_options);
        return record;
    }

    // Waits until it runs or has ended. Errors: timeout, interrupted, terminated; the job is then stopped.
    Result<JobDetails> wait_until_running() {
        const auto began = m_context.clock.monotonic();
        std::string said;
        for (;;) {
            auto job = m_backend->poll(m_record.submission_id);
            if (job && (job->state == JobState::running || is_terminal(job->state))) return job;
            if (job && job->message != said) {
                said = job->message;
                log::info("{} {}", status_of(*job), said);
            }
            const auto now = m_context.clock.monotonic();
            if (!job && !is_out_of_reach(job.error())) {
                give_up();
                return job;
            }
            if (now >= m_deadline) {
                give_up();
                return tl::unexpected(not_ready());
            }
            const auto pause = now - began < k_quick_polls ? k_quick_poll : k_slow_poll;
            if (!m_context.clock.sleep_for(pause, m_context.stop)) {
                give_up();
                return tl::unexpected(stopped_error());
            }
        }
    }

    Error not_ready() const {
        return {ErrorKind::timeout,
                fmt::format("dev TPU {} was not ready on {} within {}", m_plan.tpu_name, hold_place_words(m_record),
                            format_duration(m_plan.ready_timeout)),
                "wait longer with --ready-timeout, or try another cluster with --fallback-cluster",
                {}};
    }

    // Reads the log up to the line that describes the host.
    Status read_host() {
        GDNCTL_TRY_ASSIGN(const auto log, m_backend->open_log(m_record.submission_id, {.follow = true}));
        const auto limit = m_context.clock.monotonic() + k_marker_limit;
        devtpu::HolderLog found;
        std::string shown;
        for (;;) {
            const auto read = log->pump([&](std::string_view bytes) {
                found.feed(bytes);
                if (shown.size() < k_shown_log) shown.append(bytes.substr(0, k_shown_log - shown.size()));
                return true;
            });
            if (found.host()) break;
            const auto job = m_backend->poll(m_record.submission_id);
            const bool over = job && is_terminal(job->state);
            if (over || m_context.clock.monotonic() >= limit) {
                if (!text::trim(shown).empty()) log::info("{}", text::visible(text::trim(shown)));
                return fail(
                    ErrorKind::infrastructure,
                    over ? fmt::format("the holder {}: {}", status_of(*job), job->message)
                         : fmt::format("the holder did not report its host within {}", format_duration(k_marker_limit)),
                    read ? "" : read.error().text());
            }
            if (!m_context.clock.sleep_for(milliseconds(100), m_context.stop)) return tl::unexpected(stopped_error());
        }
        m_record.host = *found.host();
        return {};
    }

    Status make_ready() {
        GDNCTL_TRY(read_host());
        if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
        if (!m_record.host.error.empty()) {
            constexpr std::size_t k_shown = 160;
            log::info("some information about the host is missing: {}",
                      text::visible(std::string_view(m_record.host.error).substr(0, k_shown)));
        }
        if (m_adopted) log::info("taking over your hold {}", m_record.submission_id);
        log::info("TPU allocated successfully!");
        log::info("host: {} ({}{}{})", m_record.host.hostname, m_record.host.reachable_ip(),
                  m_record.tpu_type.empty() ? "" : ", ", m_record.tpu_type);
        const bool ssh = m_backend->hosts_have_ssh();
        if (ssh) reach_host(m_record, m_plan.ssh_user, m_context);
        GDNCTL_TRY(m_store.put(m_record));
        GDNCTL_TRY(renew_first());
        if (!m_record.alias.empty()) log::info("SSH alias: {}", m_record.alias);
        if (!ssh) log::info("{}: commands run in the holder's container", m_backend->name());
        if (ssh && m_plan.sync) GDNCTL_TRY(prepare_tree());
        if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
        m_record.state = "ready";
        return m_store.put(m_record);
    }

    // A TPU is not given back because its host cannot be reached: jobs next to the holder need no ssh, and bring the
    // tree along.
    Status prepare_tree() {
        const auto synced = sync_to_host(m_record, m_plan.sync_path, m_plan.replaces_tree || !m_adopted, m_context);
        if (synced) {
            if (m_plan.setup) m_record.setup_ok = set_up_host(m_record, m_context);
            return {};
        }
        const Error& error = synced.error();
        if (error.kind != ErrorKind::infrastructure && error.kind != ErrorKind::authentication) {
            return tl::unexpected(error);
        }
        log::warning("{}", error.text());
        log::warning("the hold is kept, without the tree on its host");
        if (!error.hint.empty()) log::warning("hint: {}", error.hint);
        return {};
    }

    // Makes the first renewal here, where another way can still be chosen if it fails: if the host's lease folder is
    // not the holder's, jobs next to it renew the lease.
    Status renew_first() {
        if (const auto connection = connection_of(m_record, m_context)) {
            const Status renewed = renew_by_connection(m_record, *connection, {}, m_context, m_context.stop);
            if (!renewed && !connection->is_local()) {
                log::warning("{}: jobs on the holder's host renew it", renewed.error().text());
                m_record.ssh_ok = false;
            }
        }
        m_record.renewed = m_context.clock.wall();
        GDNCTL_TRY_ASSIGN(m_renewer, start_renewing(m_record, m_options, m_context));
        return {};
    }

    void give_up() {
        Context patient = without_stop(m_context);
        m_renewer.reset();
        m_backend->ignore_stop_requests();
        const Status released = release_hold(m_record, *m_backend, m_plan.stop_timeout, patient);
        if (!released) log::warning("{}", released.error().text());
    }

    const JobDestination& m_place;
    const DestinationOptions& m_options;
    const HoldPlan& m_plan;
    Context& m_context;
    Clock::Monotonic m_deadline;
    devtpu::HoldStore m_store;
    TpuChoice m_tpu;
    std::unique_ptr<JobBackend> m_backend;
    HoldRecord m_record;
    std::unique_ptr<LeaseRenewer> m_renewer;
    std::optional<FileLock> m_submitting;
    bool m_adopted = false;
};

Result<std::unique_ptr<Holding>> hold_tpu(const JobDestination& place, const DestinationOptions& options,
                                          const HoldPlan& plan, Context& context) {
    return Allocation(place, options, plan, context).run();
}

}  // namespace gdnctl
