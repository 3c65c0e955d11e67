#include "commands/job_submit.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "commands/job_env.h"
#include "commands/job_given_up.h"
#include "commands/job_tree.h"
#include "gdnctl/cli/version.h"
#include "gdnctl/core/json.h"
#include "gdnctl/core/log.h"
#include "gdnctl/core/redact.h"
#include "gdnctl/core/text.h"
#include "gdnctl/platform/clock.h"
#include "gdnctl/platform/env.h"
#include "gdnctl/platform/fs.h"
#include "gdnctl/platform/journal.h"
#include "gdnctl/platform/terminal.h"

namespace gdnctl::commands {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds k_stop_patience{60};
constexpr std::chrono::seconds k_journal_wait{10};
constexpr double k_longest_s = 1e9;  // of --timeout; keeps the conversion in range

std::string host_name() {
    std::array<char, 256> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string("unknown");
}

std::optional<fs::path> working_dir(const SubmitOptions& options, const Context& context) {
    if (!options.working_dir) return project_root(context);
    if (*options.working_dir == "none") return std::nullopt;
    return (context.cwd / *options.working_dir).lexically_normal();
}

// The lines of a requirements file, less comments and blank ones. Error: usage.
Result<std::vector<std::string>> read_requirements(const fs::path& path) {
    GDNCTL_TRY_ASSIGN(const std::string text, read_file(path));
    std::vector<std::string> lines;
    for (std::string_view line : text::split(text, '\n')) {
        line = text::trim(line.substr(0, line.starts_with('#') ? 0 : line.find(" #")));
        if (line.empty()) continue;
        if (line.ends_with('\\') || line.starts_with('-')) {
            return fail(ErrorKind::usage,
                        path.string() + ": only plain requirements travel with a job, not '" + std::string(line) + "'");
        }
        lines.emplace_back(line);
    }
    return lines;
}

// Its own and its retry's id and nonce are all that two submissions of one request differ in.
void put_identity(JobRequest& request, std::string_view kind, const std::string& user, const Context& context) {
    std::random_device random;
    request.submission_id = make_submission_id(kind, user, context.clock.wall(), random());
    request.metadata["nonce"] = fmt::format("{:08x}{:08x}", random(), random());
}

// On a cluster a background child outlives its job and may keep the chips: whatever is left of the job's process group
// ends with its command. (A shell runs no EXIT trap when a signal ends it.)
constexpr std::string_view k_clear_group =
    "trap 'rc=$?; trap \"\" TERM; kill 0; exit $rc' EXIT; trap 'exit 143' TERM; ";

}  // namespace

std::string_view own_command(std::string_view entrypoint) {
    if (entrypoint.starts_with(k_clear_group)) entrypoint.remove_prefix(k_clear_group.size());
    return entrypoint;
}

std::vector<std::string> names_of(const std::vector<JobEnv>& env) {
    std::set<std::string> names;
    for (const JobEnv& item : env) names.insert(item.name);
    return {names.begin(), names.end()};
}

Result<JobRequest> request_for(const JobPlan& plan, const SubmitOptions& options, bool on_cluster, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto extra, parse_env_items(options.env, "-e"));
    if (options.submission_id) GDNCTL_TRY(check_submission_id(*options.submission_id));

    JobRequest request;
    const std::string user = user_name(context.env);
    put_identity(request, plan.kind, user, context);
    if (options.submission_id) request.submission_id = *options.submission_id;
    const auto facts = git_facts(project_root(context), context);
    request.metadata.insert(facts.begin(), facts.end());
    request.metadata["gdnctl_version"] = std::string(cli::version());
    request.metadata["kind"] = plan.kind;
    request.metadata["target"] = plan.target;
    request.metadata["user"] = user;
    request.metadata["host"] = host_name();
    request.entrypoint = plan.command.entrypoint;
    if (on_cluster) {
        request.entrypoint.insert(0, k_clear_group);
        const auto sha = facts.find("git_sha");
        ClusterEnvOptions wanted{options.no_secrets, sha == facts.end() ? std::string() : sha->second,
                                 plan.cluster_env};
        GDNCTL_TRY_ASSIGN(request.env, cluster_job_env(wanted, context));
    }
    for (const auto& [name, value] : plan.command.env) request.env.push_back({name, value});
    request.env.insert(request.env.end(), extra.begin(), extra.end());
    for (const JobEnv& item : extra) register_secret(item.value);
    request.resources = plan.command.resources;
    request.keep_workdir = options.keep_workdir;
    if (options.pip_requirements) {
        GDNCTL_TRY_ASSIGN(request.pip, read_requirements(context.cwd / *options.pip_requirements));
    }
    if (options.working_dir && options.working_dir->find("://") != std::string::npos) {
        request.working_dir_uri = *options.working_dir;
    } else if (const auto folder = working_dir(options, context)) {
        GDNCTL_TRY_ASSIGN(request.working_dir, list_working_tree(*folder, context));
    }
    return request;
}

namespace {

// $STATE/jobs.jsonl: what was submitted from here, whatever the backend. A job that runs is not lost for its sake.
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
    if (!written) log::warning("the job runs, but it is not in the list of submissions: {}", written.error().text());
}

// Never the values: they may be secrets.
void show_environment(const JobRequest& request, const JobBackend& backend) {
    if (request.env.empty()) return;
    log::info("environment of the job: {}", text::join(names_of(request.env), " "));
    if (backend.name() == "local") return;
    log::info("whoever has the cluster's token can read the values; --no-secrets leaves the secrets out");
}

// After an interruption or the time limit.
void leave_or_stop(const SubmitOptions& options, JobBackend& backend, std::string_view id, bool must_stop,
                   Context& context) {
    if (!options.auto_stop && !must_stop) {
        show_next_commands(backend, id);
        return;
    }
    // The first signal is already behind us: what follows is not to be cut short by it.
    backend.ignore_stop_requests();
    const auto stopped = backend.stop(id);
    if (!stopped) {
        log::warning("cannot stop job {}: {}", id, stopped.error().text());
        return;
    }
    log::info("Job {} stop requested", id);
    Context patient{context.env, context.clock, context.terminal,  context.config, context.process, context.http,
                    {},          context.cwd,   context.state_dir, context.global};
    WatchOptions watch;
    watch.poll = std::chrono::milliseconds(100);
    watch.timeout = k_stop_patience;
    watch.whole_messages = false;
    watch.submitted = true;
    const auto end = wait_for_job(backend, id, watch, patient);
    if (end && !end->timed_out) return;
    log::warning("job {} has not ended yet", id);
    remember_given_up(backend, id, patient);
}

}  // namespace

void show_next_commands(const JobBackend& backend, std::string_view id) {
    const std::string words = cluster_words(backend) + " " + std::string(id);
    log::info("the job goes on; next:\n  gdnctl ray-wait{}\n  gdnctl ray-logs{}\n  gdnctl ray-stop{}", words, words,
              words);
}

void describe_submit(cli::Args& args, SubmitOptions& options) {
    args.flag(options.no_wait, {.names = "--no-wait", .help = "return when the job is submitted, and print its id"});
    args.option(options.submission_id, {.names = "--submission-id",
                                        .value = "ID",
                                        .help = "id of the job; must be new",
                                        .group = "Submission",
                                        .default_text = "gdnctl-<kind>-<user>-<UTC>-<8 hex>"});
    args.option(options.env, {.names = "-e,--env",
                              .value = "KEY=VALUE",
                              .help = "environment variable of the job; may be repeated",
                              .group = "Submission"});
    args.option(options.working_dir, {.names = "--working-dir",
                                      .value = "PATH|URI|none",
                                      .help = "folder whose files the job gets a copy of",
                                      .group = "Submission",
                                      .default_text = "the repository",
                                      .complete = cli::Complete::directory});
    args.flag(options.keep_workdir, {.names = "--keep-workdir",
                                     .help = "leave the job's copy of the working directory in place",
                                     .group = "Submission"});
    args.option(options.pip_requirements, {.names = "--pip-requirements",
                                           .value = "FILE",
                                           .help = "packages for the job; not on the local backend",
                                           .group = "Submission",
                                           .complete = cli::Complete::file});
    args.flag(options.no_secrets, {.names = "--no-secrets",
                                   .help = "keep HF_TOKEN, WANDB_API_KEY and other secrets off the cluster",
                                   .group = "Submission"});
    args.option(options.resubmit, {.names = "--resubmit",
                                   .value = "N",
                                   .help = "submit again, up to N times, what the cluster's own faults have ended",
                                   .group = "Submission"});
    args.option(options.timeout_s, {.names = "--timeout",
                                    .value = "SECONDS",
                                    .help = "give up after this time; the job goes on, unless --auto-stop",
                                    .group = "Submission"});
    args.flag(options.auto_stop, {.names = "--auto-stop",
                                  .help = "stop the job when this command is interrupted or runs out of time",
                                  .group = "Submission"});
    args.exit_code(1, "the job failed by its own fault");
    args.exit_code(3, "the job was stopped");
    args.exit_code(124, "--timeout (the job goes on), or the target's time limit (the job is stopped)");
    args.exit_code(130, "interrupted; the job goes on, unless --auto-stop");
    args.check([&options]() -> Status {
        if (options.resubmit < 0) return fail(ErrorKind::usage, "--resubmit wants 0 or more");
        if (options.timeout_s && !(*options.timeout_s >= 0 && *options.timeout_s <= k_longest_s)) {
            return fail(ErrorKind::usage, "--timeout wants 0 to 1e9 seconds");
        }
        if (options.no_wait && (options.resubmit > 0 || options.timeout_s)) {
            return fail(ErrorKind::usage, "--resubmit and --timeout need the job's end: leave out --no-wait");
        }
        return {};
    });
}

std::string self_path() {
    std::error_code problem;
    const fs::path path = fs::read_symlink("/proc/self/exe", problem);
    return problem ? std::string("gdnctl") : path.string();
}

namespace {

std::optional<std::chrono::milliseconds> time_limit(const JobPlan& plan, const SubmitOptions& options) {
    std::optional<std::chrono::milliseconds> limit;
    if (plan.command.timeout_s) limit = std::chrono::seconds(*plan.command.timeout_s);
    if (options.timeout_s) {
        const auto own = std::chrono::milliseconds(static_cast<std::int64_t>(*options.timeout_s * 1000.0));
        limit = limit ? std::min(*limit, own) : own;
    }
    return limit;
}

// Follows the log to the end of the job, and fills in what that tells.
Status follow_to_the_end(JobRun& run, const JobPlan& plan, const SubmitOptions& options, JobBackend& backend,
                         Context& context) {
    const std::string& id = run.request.submission_id;
    run.waited = true;
    GDNCTL_TRY_ASSIGN(const auto log, backend.open_log(id, {.follow = true}));
    const LogFilter::Out print = log_printer(context);
    WatchOptions watch;
    watch.whole_messages = false;
    watch.submitted = true;
    watch.timeout = time_limit(plan, options);
    auto watched = follow_job(
        backend, id, *log, watch,
        [&](std::string_view bytes) {
            print(bytes);
            run.output.feed(bytes);
        },
        context);
    if (!watched) {
        const ErrorKind kind = watched.error().kind;
        const bool interrupted = kind == ErrorKind::interrupted || kind == ErrorKind::terminated;
        if (interrupted) leave_or_stop(options, backend, id, false, context);
        return tl::unexpected(std::move(watched).error());
    }
    if (watched->timed_out) {
        // The target's own limit is about the job, --timeout about this command's patience.
        const bool of_target = plan.command.timeout_s && watch.timeout == std::chrono::seconds(*plan.command.timeout_s);
        leave_or_stop(options, backend, id, of_target, context);
        log::error("job {} did not end within {}", id, format_duration(*watch.timeout));
        run.output.finish();
        run.details = std::move(watched->details);
        run.verdict = {FailureClass::timeout, ExitCode::timeout};
        return {};
    }
    run.output.finish();
    run.details = std::move(watched->details);
    run.verdict = classify(run.details, run.output.tail());
    return {};
}

Result<JobRun> run_once(JobRequest request, const JobPlan& plan, const SubmitOptions& options, JobBackend& backend,
                        Context& context) {
    GDNCTL_TRY_ASSIGN(const Submitted submitted, backend.submit(request));
    const std::string& id = submitted.submission_id;
    JobRun run;
    run.place = place_of(backend, id);
    run.request = std::move(request);
    for (const std::string& warning : submitted.warnings) log::warning("{}", warning);
    log::info("Job submitted with ID: {}", id);
    log::info("Job URL: {}", run.place.url);
    remember(run.request, run.place, submitted.session, context);
    if (!options.no_wait) {
        GDNCTL_TRY(follow_to_the_end(run, plan, options, backend, context));
        return run;
    }
    GDNCTL_TRY_ASSIGN(run.details, backend.details(id));
    // On stdout, for scripts: it is all that this call has to give.
    if (!context.global.json) context.terminal.out("[gdnctl] submission_id=" + id + "\n");
    return run;
}

}  // namespace

Result<JobRun> run_job(const JobPlan& plan, const SubmitOptions& options, JobBackend& backend, Context& context) {
    GDNCTL_TRY_ASSIGN(JobRequest request, request_for(plan, options, backend.name() != "local", context));
    show_environment(request, backend);
    for (std::int64_t again = 0;; ++again) {
        GDNCTL_TRY_ASSIGN(JobRun run, run_once(request, plan, options, backend, context));
        if (!run.waited || run.verdict.failure != FailureClass::infra || again >= options.resubmit) return run;
        report_end(run);
        put_identity(request, plan.kind, user_name(context.env), context);
        log::warning("submitting it again, as {} ({} of {})", request.submission_id, again + 1, options.resubmit);
    }
}

void report_end(const JobRun& run) {
    const FailureClass failure = run.verdict.failure;
    if (!run.waited || failure == FailureClass::none || failure == FailureClass::timeout) return;
    const JobDetails& d = run.details;
    const std::string code = d.driver_exit_code ? fmt::format(", exit code {}", *d.driver_exit_code) : std::string();
    log::error("job {} {} ({}{})", d.submission_id, to_text(d.state),
               d.error_type.value_or(std::string(to_text(run.verdict.failure))), code);
    if (run.verdict.failure == FailureClass::infra_suspect) {
        log::warning("the log has signs of a bad accelerator node: try again before you blame the change");
    }
}

}  // namespace gdnctl::commands
