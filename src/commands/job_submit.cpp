#include "commands/job_submit.h"

#include <array>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

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

Result<JobRequest> request_for(const JobPlan& plan, const SubmitOptions& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto extra, parse_env_items(options.env, "-e"));
    if (options.submission_id) GDNCTL_TRY(check_submission_id(*options.submission_id));

    std::random_device random;
    JobRequest request;
    const std::string user = user_name(context.env);
    request.submission_id =
        options.submission_id.value_or(make_submission_id(plan.kind, user, context.clock.wall(), random()));
    request.entrypoint = plan.command.entrypoint;
    for (const auto& [name, value] : plan.command.env) request.env.push_back({name, value});
    request.env.insert(request.env.end(), extra.begin(), extra.end());
    for (const JobEnv& item : extra) register_secret(item.value);
    request.resources = plan.command.resources;
    request.keep_workdir = options.keep_workdir;
    request.metadata = git_facts(project_root(context), context);
    request.metadata["gdnctl_version"] = std::string(cli::version());
    request.metadata["kind"] = plan.kind;
    request.metadata["target"] = plan.target;
    request.metadata["user"] = user;
    request.metadata["host"] = host_name();
    request.metadata["nonce"] = fmt::format("{:08x}{:08x}", random(), random());
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

std::string names_of(const std::vector<JobEnv>& env) {
    std::vector<std::string> names;
    for (const JobEnv& item : env) names.push_back(item.name);
    return text::join(names, " ");
}

void show_next_commands(const JobBackend& backend, std::string_view id) {
    const std::string words = cluster_words(backend) + " " + std::string(id);
    log::info("the job goes on; next:\n  gdnctl ray-wait{}\n  gdnctl ray-logs{}\n  gdnctl ray-stop{}", words, words,
              words);
}

// After an interruption or the time limit.
void leave_or_stop(const SubmitOptions& options, JobBackend& backend, std::string_view id, bool must_stop,
                   Context& context) {
    if (!options.auto_stop && !must_stop) {
        show_next_commands(backend, id);
        return;
    }
    const auto stopped = backend.stop(id);
    if (!stopped) {
        log::warning("cannot stop job {}: {}", id, stopped.error().text());
        return;
    }
    log::info("Job {} stop requested", id);
    // The first signal is already behind us: this wait is not to be cut short by it.
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
    args.flag(options.auto_stop, {.names = "--auto-stop",
                                  .help = "stop the job when this command is interrupted or runs out of time",
                                  .group = "Submission"});
    args.exit_code(1, "the job failed by its own fault");
    args.exit_code(3, "the job was stopped");
    args.exit_code(124, "the target's time limit was reached; the job is stopped");
    args.exit_code(130, "interrupted; the job goes on, unless --auto-stop");
}

std::string self_path() {
    std::error_code problem;
    const fs::path path = fs::read_symlink("/proc/self/exe", problem);
    return problem ? std::string("gdnctl") : path.string();
}

Result<JobRun> run_job(const JobPlan& plan, const SubmitOptions& options, JobBackend& backend, Context& context) {
    GDNCTL_TRY_ASSIGN(const JobRequest request, request_for(plan, options, context));
    GDNCTL_TRY_ASSIGN(const Submitted submitted, backend.submit(request));
    const std::string& id = submitted.submission_id;
    JobRun run;
    run.place = place_of(backend, id);
    for (const std::string& warning : submitted.warnings) log::warning("{}", warning);
    log::info("Job submitted with ID: {}", id);
    log::info("Job URL: {}", run.place.url);
    if (!request.env.empty()) log::info("environment of the job: {}", names_of(request.env));
    remember(request, run.place, submitted.session, context);

    if (options.no_wait) {
        GDNCTL_TRY_ASSIGN(run.details, backend.details(id));
        // On stdout, for scripts: it is all that this call has to give.
        if (!context.global.json) context.terminal.out("[gdnctl] submission_id=" + id + "\n");
        return run;
    }
    run.waited = true;
    GDNCTL_TRY_ASSIGN(const auto log, backend.open_log(id, {.follow = true}));
    const LogFilter::Out print = log_printer(context);
    WatchOptions watch;
    watch.whole_messages = false;
    watch.submitted = true;
    if (plan.command.timeout_s) watch.timeout = std::chrono::seconds(*plan.command.timeout_s);
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
        leave_or_stop(options, backend, id, true, context);
        return fail(ErrorKind::timeout,
                    fmt::format("job {} did not end within {} seconds", id, *plan.command.timeout_s));
    }
    run.output.finish();
    run.details = std::move(watched->details);
    run.verdict = classify(run.details, run.output.tail());
    return run;
}

void report_end(const JobRun& run) {
    if (!run.waited || run.verdict.failure == FailureClass::none) return;
    const JobDetails& d = run.details;
    const std::string code = d.driver_exit_code ? fmt::format(", exit code {}", *d.driver_exit_code) : std::string();
    log::error("job {} {} ({}{})", d.submission_id, to_text(d.state),
               d.error_type.value_or(std::string(to_text(run.verdict.failure))), code);
    if (run.verdict.failure == FailureClass::infra_suspect) {
        log::warning("the log has signs of a bad accelerator node: try again before you blame the change");
    }
}

}  // namespace gdnctl::commands
