#include "jobs/run.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/outputs.h"
#include "jobs/stop.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/journal.h"
#include "platform/progress.h"
#include "platform/terminal.h"

namespace gdnctl {

void DataLines::feed(std::string_view bytes) {
    constexpr std::size_t k_longest = std::size_t{64} << 20U;
    while (!bytes.empty()) {
        const auto end = bytes.find('\n');
        const std::string_view piece = bytes.substr(0, end == std::string_view::npos ? end : end + 1);
        bytes.remove_prefix(piece.size());
        const bool ends = piece.back() == '\n';
        if (m_passing) {
            m_rest(piece);
        } else {
            m_line.append(piece);
            const std::size_t compared = std::min(m_line.size(), m_prefix.size());
            if (m_line.compare(0, compared, m_prefix, 0, compared) != 0 || m_line.size() > k_longest ||
                (ends && compared < m_prefix.size())) {
                m_rest(m_line);
                m_line.clear();
                m_passing = true;
            } else if (ends) {
                m_last = std::exchange(m_line, std::string());
            }
        }
        if (ends) m_passing = false;
    }
}

std::string DataLines::finish() {
    if (m_line.size() >= m_prefix.size() && !m_prefix.empty()) {
        m_last = m_line;
    } else if (!m_line.empty()) {
        m_rest(m_line);
    }
    return std::move(m_last);
}

Json tests_json(const std::optional<PytestCounts>& counts) {
    if (!counts) return nullptr;
    Json out;
    out["passed"] = counts->passed;
    out["failed"] = counts->failed;
    out["errors"] = counts->errors;
    out["skipped"] = counts->skipped;
    out["deselected"] = counts->deselected;
    out["xfailed"] = counts->xfailed;
    out["xpassed"] = counts->xpassed;
    out["seconds"] = json::or_null(counts->seconds);
    return out;
}

Json device_json(const std::optional<DeviceReport>& device) {
    if (!device) return nullptr;
    return Json{{"backend", device->backend}, {"count", device->count}};
}

Json verdict_json(const OracleVerdicts& verdicts) {
    if (verdicts.overall.empty()) return nullptr;
    Json out;
    out["overall"] = verdicts.overall;
    out["cases"] = verdicts.cases;
    out["vectors"] = verdicts.vectors;
    out["counts"] = verdicts.counts;
    if (!verdicts.kernel.empty()) out["kernel"] = verdicts.kernel;
    return out;
}

Json profile_json(const ProfileReport& profile) {
    if (profile.empty()) return nullptr;
    Json out;
    out["mfu"] = json::or_null(profile.mfu);
    out["tokens_per_second"] = json::or_null(profile.tokens_per_second);
    out["duration_s"] = json::or_null(profile.duration);
    out["run_url"] = json::or_null(profile.run_url);
    out["ce_implementation"] = json::or_null(profile.ce_implementation);
    out["model"] = profile.model;
    return out;
}

void put_command(Json& object, const JobRequest& request) {
    object["entrypoint"] = own_command(request.entrypoint);
    object["env_names"] = names_of(request.env);
    object["resources"] = request.resources;
}

bool is_tpu_evidence(const JobPlace& place, const JobVerdict& verdict, const JobDetails& details,
                     const JobOutput& output) {
    if (place.backend == "local" || details.state != JobState::succeeded || verdict.exit != ExitCode::ok) return false;
    if (const auto& device = output.device()) return device->backend == "tpu" && device->count > 0;
    return output.profile().mfu.has_value();
}

namespace {

constexpr std::chrono::seconds k_stop_patience{60};
constexpr std::chrono::seconds k_journal_wait{10};

// What follows the name of a command about the job: " --cluster local ID".
std::string command_words(const JobBackend& backend, std::string_view id) {
    return cluster_words(backend) + (id.starts_with('-') ? " -- " : " ") + text::shell_quote(id);
}

// Appends to $STATE/jobs.jsonl, the list of all jobs submitted from this machine. A failure does not affect the running
// job.
void remember(const JobRequest& request, const JobPlace& place, const std::string& session, Context& context) {
    Json record;
    record["time"] = format_iso8601(context.clock.wall());
    record["submission_id"] = request.submission_id;
    record["backend"] = place.backend;
    record["cluster"] = place.cluster;
    record["address"] = place.address;
    record["kind"] = request.metadata.at("kind");
    record["target"] = request.metadata.at("target");
    record["nonce"] = request.metadata.at("nonce");
    record["session"] = session;
    const auto append = [&]() -> Status {
        GDNCTL_TRY(make_private_directory(context.state_dir));
        GDNCTL_TRY_ASSIGN(Journal journal, Journal::open(context.state_dir / "jobs.jsonl",
                                                         {k_journal_wait, &context.clock, context.stop}));
        return journal.append(to_text(record));
    };
    const Status written = append();
    if (!written) {
        log::warning("the job is running, but could not be added to the list of submissions: {}",
                     written.error().text());
    }
}

// Never the values, which may be secrets.
void show_environment(const JobRequest& request, const JobBackend& backend) {
    if (request.env.empty()) return;
    log::info("environment of the job: {}", text::join(names_of(request.env), " "));
    if (backend.name() == "local") return;
    // The commands for a held TPU have no such option.
    log::info("anyone with the cluster's token can read the values{}",
              request.beside.empty() ? "; --no-secrets leaves out secrets" : "");
}

// After an interruption or the time limit. Returns the state of a job that was stopped; nullopt: it keeps running.
std::optional<JobDetails> leave_or_stop(const SubmitOptions& options, JobBackend& backend, std::string_view id,
                                        bool must_stop, Context& context) {
    if (!options.auto_stop && !must_stop) {
        show_next_commands(backend, id);
        return std::nullopt;
    }
    // The first signal has already arrived; it must not interrupt what follows.
    backend.ignore_stop_requests();
    const auto stopped = backend.stop(id);
    if (!stopped) {
        log::warning("cannot stop job {}: {}", id, stopped.error().text());
        return std::nullopt;
    }
    log::info("Job {} stop requested", id);
    Context patient{context.env, context.clock, context.terminal,  context.config,  context.process, context.http,
                    {},          context.cwd,   context.state_dir, context.program, context.global};
    WatchOptions watch;
    watch.poll = std::chrono::milliseconds(100);
    watch.timeout = k_stop_patience;
    watch.whole_messages = false;
    watch.submitted = true;
    auto end = wait_for_job(backend, id, watch, patient);
    if (end && !end->timed_out) return std::move(end->details);
    log::warning("job {} has not ended yet", id);
    remember_pending_stop(backend, id, patient);
    return std::nullopt;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000.0));
}

std::optional<std::chrono::milliseconds> time_limit(const JobPlan& plan, const SubmitOptions& options) {
    std::optional<std::chrono::milliseconds> limit;
    if (plan.command.timeout_s) limit = std::chrono::seconds(*plan.command.timeout_s);
    if (options.timeout_s) {
        const auto own = milliseconds_of(*options.timeout_s);
        limit = limit ? std::min(*limit, own) : own;
    }
    return limit;
}

// For a command that cannot show a job's output: its disk is full, for instance. The job does not depend on it.
std::string how_to_see(const JobBackend& backend, const JobDetails& job) {
    const std::string words = command_words(backend, job.submission_id);
    return is_terminal(job.state)
               ? fmt::format("the job has ended: `{} --show-logs{}` shows it", job_command(backend, "wait"), words)
               : fmt::format("the job keeps running: `{} --follow{}` shows it", job_command(backend, "logs"), words);
}

// The log is complete.
void finish_output(JobRun& run) {
    run.output.finish();
    if (run.metric) run.metric->finish();
}

// Follows the log to the end of the job and records the results.
Status follow_to_the_end(JobRun& run, const JobPlan& plan, const SubmitOptions& options, JobBackend& backend,
                         Context& context) {
    const std::string& id = run.request.submission_id;
    run.waited = true;
    GDNCTL_TRY_ASSIGN(const auto log, backend.open_log(id, {.follow = true}));
    LogFilter::Out print = log_printer(context);
    // What runs on a held TPU prints the same over ssh and as a job.
    DataLines data(plan.data_prefix, print);
    if (!plan.data_prefix.empty()) print = [&data](std::string_view bytes) { data.feed(bytes); };
    WithoutRayLines own(id, run.request.entrypoint, print);
    if (!plan.beside.empty()) print = [&own](std::string_view bytes) { own.feed(bytes); };
    WatchOptions watch;
    watch.whole_messages = false;
    watch.submitted = true;
    watch.timeout = time_limit(plan, options);
    if (options.idle_timeout_s) watch.idle_timeout = milliseconds_of(*options.idle_timeout_s);
    watch.needs_log = plan.metric || plan.log_decides;
    watch.last = &run.details;
    auto watched = follow_job(
        backend, id, *log, watch,
        [&](std::string_view bytes) {
            print(bytes);
            run.output.feed(bytes);
            if (run.metric) run.metric->feed(bytes);
        },
        context);
    own.finish();
    run.data = data.finish();
    if (!watched) {
        const bool ended = is_terminal(run.details.state);
        if (is_interruption(watched.error()) && !ended) {
            if (auto end = leave_or_stop(options, backend, id, false, context)) run.details = std::move(*end);
        }
        Error error = std::move(watched).error();
        if (error.kind == ErrorKind::local_io || ended) error.hint = how_to_see(backend, run.details);
        return tl::unexpected(std::move(error));
    }
    if (watched->timed_out) {
        // The target's own limit applies to the job, --timeout to this command.
        const bool of_target = plan.command.timeout_s && watch.timeout == std::chrono::seconds(*plan.command.timeout_s);
        run.details = std::move(watched->details);
        if (watched->idle) {
            log::error("job {} wrote nothing for {}", id, format_duration(*watch.idle_timeout));
        } else {
            log::error("job {} did not end within {}", id, format_duration(*watch.timeout));
        }
        const bool must_stop = of_target || watched->idle;
        if (auto end = leave_or_stop(options, backend, id, must_stop, context)) run.details = std::move(*end);
        finish_output(run);
        run.verdict = {FailureClass::timeout, ExitCode::timeout};
        return {};
    }
    finish_output(run);
    run.details = std::move(watched->details);
    if (!plan.bring_back.empty()) run.brought_back = backend.brought_back(id).value_or(std::filesystem::path());
    run.verdict = classify(run.details, run.output.tail());
    return {};
}

void cut_short(JobRun& run, const Error& error) {
    finish_output(run);
    if (run.metric) run.metric->discard("the end of the log is missing");
    run.verdict = {failure_of(error), exit_code_of(error.kind)};
    run.cut_short = error;
}

// After a submission was interrupted during its request: if the job appears anyway, it is stopped. True: it was.
bool stop_if_taken(JobRun& run, const SubmitOptions& options, JobBackend& backend, Context& context) {
    constexpr int k_looks = 5;
    backend.ignore_stop_requests();
    for (int look = 0; look < k_looks; ++look) {
        if (look > 0) context.clock.sleep_for(std::chrono::milliseconds(500), {});
        auto job = backend.poll(run.request.submission_id);
        if (!job || job->metadata["nonce"] != run.request.metadata.at("nonce")) continue;
        run.details = std::move(*job);
        auto end = leave_or_stop(options, backend, run.request.submission_id, true, context);
        if (end) run.details = std::move(*end);
        return true;
    }
    return false;
}

// Submits within --timeout. Error timeout: no answer in that time.
Result<Submitted> submit_in_time(const JobRequest& request, const SubmitOptions& options, JobBackend& backend,
                                 Context& context) {
    if (!options.timeout_s) return backend.submit(request);
    const auto patience = milliseconds_of(*options.timeout_s);
    const auto deadline = context.clock.monotonic() + patience;
    backend.set_deadline(deadline);
    auto submitted = backend.submit(request);
    backend.set_deadline(std::nullopt);
    // The next try would have come too late; two tries are at most 5 s apart.
    const bool ran_out = context.clock.monotonic() + std::chrono::seconds(5) > deadline;
    if (submitted || submitted.error().kind != ErrorKind::infrastructure || !ran_out) return submitted;
    Error error = std::move(submitted).error();
    error.kind = ErrorKind::timeout;
    error.message = fmt::format("the job was not submitted within {}: {}", format_duration(patience), error.message);
    return tl::unexpected(std::move(error));
}

// After the job's end: what it stored, and where that is now.
void bring_outputs(JobRun& run, const SubmitOptions& options, JobBackend& backend, Context& context) {
    const bool interrupted = run.cut_short && is_interruption(*run.cut_short);
    if (!is_terminal(run.details.state) || interrupted) return;
    run.outputs = outputs_of(backend, run.details.submission_id);
    ask_for_cause(backend, run.details);
    show_job_end(run.details, run.outputs);
    if (!options.outputs) return;
    Status fetched = fetch_outputs(run.details, run.outputs, context.cwd / *options.outputs, context);
    if (fetched) return;
    run.not_fetched = std::move(fetched).error();
    if (run.cut_short || run.verdict.exit != ExitCode::ok) log::error("{}", run.not_fetched->text());
}

Result<JobRun> run_once(JobRequest request, const JobPlan& plan, const SubmitOptions& options, JobBackend& backend,
                        Context& context) {
    JobRun run;
    if (plan.metric) {
        GDNCTL_TRY_ASSIGN(run.metric, MetricReader::create(*plan.metric));
    }
    run.request = std::move(request);
    const std::string& id = run.request.submission_id;
    run.place = place_of(backend, id);
    run.details.submission_id = id;
    // The package, the connection and the answer can take a while.
    Progress progress(context.terminal, context.clock,
                      {.label = fmt::format("submitting {}", id), .quiet = context.global.quiet});
    progress.tick();
    auto submitted = submit_in_time(run.request, options, backend, context);
    progress.finish();
    if (!submitted) {
        if (submitted.error().message == job_message::already_exists(id)) {
            submitted.error().hint = "choose another --submission-id, or leave the option out";
        }
        if (!is_interruption(submitted.error())) return tl::unexpected(submitted.error());
        run.submitted =
            !submitted.error().hint.empty() && options.auto_stop && stop_if_taken(run, options, backend, context);
        cut_short(run, submitted.error());
        return run;
    }
    for (const std::string& warning : submitted->warnings) log::warning("{}", warning);
    run.request.submission_id = submitted->submission_id;  // a scheduler may have put it under another user
    run.details.submission_id = id;
    run.place = place_of(backend, id);
    log::info("Job submitted with ID: {}", id);
    if (!run.place.url.empty()) log::info("Job URL: {}", run.place.url);
    remember(run.request, run.place, submitted->session, context);
    if (!options.no_wait) {
        const Status followed = follow_to_the_end(run, plan, options, backend, context);
        if (!followed) cut_short(run, followed.error());
        if (plan.beside.empty()) bring_outputs(run, options, backend, context);
        return run;
    }
    if (!context.global.json) {
        // On stdout, for scripts: this is the call's only result.
        context.terminal.out("[gdnctl] submission_id=" + id + "\n");
        return run;
    }
    auto details = backend.details(id);
    if (details) {
        run.details = std::move(*details);
    } else {
        cut_short(run, details.error());
    }
    return run;
}

}  // namespace

void show_next_commands(const JobBackend& backend, std::string_view id) {
    std::string lines;
    for (const char* verb : {"wait", "logs", "stop"}) {
        lines += "\n  " + job_command(backend, verb) + command_words(backend, id);
    }
    log::info("the job keeps running; next:{}", lines);
}

bool is_interruption(const Error& error) {
    return error.kind == ErrorKind::interrupted || error.kind == ErrorKind::terminated;
}

FailureClass failure_of(const Error& error) {
    switch (error.kind) {
        case ErrorKind::infrastructure:
        case ErrorKind::timeout: return FailureClass::infra;
        case ErrorKind::authentication: return FailureClass::auth;
        default: return FailureClass::none;
    }
}

void put_run(Json& object, const JobRun& run) {
    put_job(object, run.place, run.details, run.verdict);
    if (!run.submitted) object["status"] = nullptr;
    put_end(object, run.details, run.outputs);
}

Result<JobRun> run_job(const JobPlan& plan, const SubmitOptions& options, JobBackend& backend, Context& context) {
    GDNCTL_TRY_ASSIGN(JobRequest request, request_for(plan, options, backend.name() != "local", context));
    show_environment(request, backend);
    for (std::int64_t again = 0;; ++again) {
        GDNCTL_TRY_ASSIGN(JobRun run, run_once(request, plan, options, backend, context));
        const bool lost =
            run.waited && !run.cut_short && run.verdict.failure == FailureClass::infra && is_known(run.details.state);
        if (!lost || again >= options.resubmit) return run;
        report_end(run);
        renew_identity(request, plan.kind, context);
        log::warning("resubmitting it as {} ({} of {})", request.submission_id, again + 1, options.resubmit);
    }
}

Result<ExitCode> exit_of(const JobRun& run, ExitCode judged) {
    if (run.cut_short) return tl::unexpected(*run.cut_short);
    if (run.not_fetched && judged == ExitCode::ok) return tl::unexpected(*run.not_fetched);
    return judged;
}

void report_end(const JobRun& run) {
    const FailureClass failure = run.verdict.failure;
    if (!run.waited || run.cut_short || failure == FailureClass::none || failure == FailureClass::timeout) return;
    const JobDetails& d = run.details;
    const std::string code = d.driver_exit_code ? fmt::format(", exit code {}", *d.driver_exit_code) : std::string();
    log::error("{} {} ({}{})", run.subject.empty() ? "job " + d.submission_id : run.subject, status_of(d),
               d.error_type.value_or(std::string(to_text(run.verdict.failure))), code);
    if (run.verdict.failure == FailureClass::infra_suspect) {
        log::warning("the log shows signs of a bad accelerator node: run again before you blame the change");
    }
}

}  // namespace gdnctl
