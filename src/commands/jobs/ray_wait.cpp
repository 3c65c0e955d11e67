// gdnctl ray-wait: wait for a job to end and return its verdict.
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "commands/jobs/job_options.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/json.h"
#include "core/log.h"
#include "jobs/given_up.h"
#include "jobs/place.h"
#include "jobs/results.h"
#include "jobs/run.h"
#include "jobs/watch.h"
#include "platform/terminal.h"

namespace gdnctl::commands::ray_wait {

struct Options {
    PlaceOptions place;
    std::optional<std::string> id;
    std::optional<std::string> match;
    double poll_s = 5.0;
    std::optional<double> timeout_s;
    bool show_logs = false;
    std::int64_t tail = 200;
    std::optional<std::string> grep;
    bool compat_exit = false;
};

namespace {

std::chrono::milliseconds seconds(double s) {
    constexpr double k_longest = 1e9;  // about 30 years: keeps the conversion in range
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(s, k_longest) * 1000.0));
}

// The given id, or that of the newest job that --match matches.
Result<std::string> resolve_id(const Options& options, JobBackend& backend) {
    if (options.id) return *options.id;
    GDNCTL_TRY_ASSIGN(const LineRegex regex, LineRegex::compile(*options.match, "--match"));
    GDNCTL_TRY_ASSIGN(const auto jobs, backend.list());
    for (const JobDetails& job : jobs) {
        if (!regex.matches(job.submission_id)) continue;
        log::info("submission_id={}", job.submission_id);
        return job.submission_id;
    }
    return fail(ErrorKind::remote_missing, "no job matches '" + *options.match + "'", "`gdnctl ray-list` shows them");
}

// Prints the whole job for readers who did not submit it: what ran, and what its log reported.
void print_end(const JobDetails& job, const JobVerdict& verdict, const JobOutput& output, const JobBackend& backend,
               Context& context) {
    const auto of_submission = [&](const char* key) {
        const auto it = job.metadata.find(key);
        return it == job.metadata.end() ? Json(nullptr) : Json(it->second);
    };
    Json out;
    out["schema"] = "gdnctl.ray-wait/1";
    put_job(out, place_of(backend, job.submission_id), job, verdict);
    out["kind"] = of_submission("kind");
    out["target"] = of_submission("target");
    out["entrypoint"] = own_command(job.entrypoint);
    out["tests"] = tests_json(output.pytest());
    out["device"] = device_json(output.device());
    out["verdict"] = verdict_json(output.verdicts());
    out["profile"] = profile_json(output.profile());
    out["tpu_evidence"] = is_tpu_evidence(place_of(backend, job.submission_id), verdict, job, output);
    print_json(out, context, -1);
}

bool is_log_trouble(const Error& error) {
    return error.kind == ErrorKind::infrastructure || error.kind == ErrorKind::remote_missing ||
           error.kind == ErrorKind::bad_input;
}

ExitCode compatible(const Result<Watched>& watched) {
    if (!watched) {
        return watched.error().kind == ErrorKind::remote_missing ? ExitCode::check_failed
                                                                 : exit_code_of(watched.error().kind);
    }
    return watched->timed_out ? ExitCode::usage : ExitCode::ok;
}

Result<ExitCode> wait(const Options& options, const std::string& id, const LineRegex* grep, JobBackend& backend,
                      Context& context) {
    WatchOptions watch;
    watch.poll = seconds(options.poll_s);
    if (options.timeout_s) watch.timeout = seconds(*options.timeout_s);
    watch.whole_messages = !options.show_logs;
    JobDetails last;
    last.submission_id = id;
    watch.last = &last;
    auto watched = wait_for_job(backend, id, watch, context);
    if (!watched) {
        const ErrorKind kind = watched.error().kind;
        if (is_interruption(watched.error())) show_next_commands(backend, id);
        // If something is known about the job, report it.
        if (context.global.json && !last.entrypoint.empty()) {
            print_end(last, {failure_of(watched.error()), exit_code_of(kind)}, {}, backend, context);
        }
        if (options.compat_exit && kind == ErrorKind::remote_missing) {
            log::error("{}", watched.error().text());
            return compatible(watched);
        }
        return tl::unexpected(std::move(watched).error());
    }
    JobVerdict verdict{FailureClass::timeout, ExitCode::timeout};
    JobOutput output;
    if (!watched->timed_out) {
        verdict = classify(watched->details);
        // Results may be anywhere in the log; signs of a bad node are near its end.
        constexpr std::size_t k_signs = 200;
        const bool suspicious = verdict.exit == ExitCode::check_failed;
        if (context.global.json || suspicious) {
            auto read = read_output(backend, id, context.global.json ? std::nullopt : std::optional(k_signs));
            if (!read && !is_log_trouble(read.error())) return tl::unexpected(std::move(read).error());
            if (!read) log::warning("{}", read.error().text());
            if (read) output = std::move(*read);
            verdict = classify(watched->details, output.tail());
        }
    } else {
        log::error("job {} has not ended within {} s", id, *options.timeout_s);
        show_next_commands(backend, id);
    }
    if (options.show_logs) {
        const Status printed =
            print_log(backend, id, grep, static_cast<std::size_t>(options.tail), log_printer(context), context);
        // An unreadable log does not hide how the job ended.
        if (!printed && !is_log_trouble(printed.error())) return tl::unexpected(printed.error());
        if (!printed) log::warning("{}", printed.error().text());
    }
    see_to_given_up(backend, context);
    if (context.global.json) print_end(watched->details, verdict, output, backend, context);
    return options.compat_exit ? compatible(watched) : verdict.exit;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Waits for a job and exits with its status. Status lines go to stderr, the log to stdout (to stderr with "
        "--json). Ctrl-C and --timeout leave the job running.");
    args.positional(options.id,
                    {.name = "ID", .help = "submission id of the job", .complete = cli::Complete::local_job});
    args.option(
        options.match,
        {.names = "--match", .value = "REGEX", .help = "wait for the newest job whose id matches, instead of ID"});
    args.option(options.poll_s, {.names = "--poll", .value = "SECONDS", .help = "polling interval"});
    args.option(options.timeout_s, {.names = "--timeout", .value = "SECONDS", .help = "give up after this time"});
    args.flag(options.show_logs, {.names = "--show-logs", .help = "print the log after the job has ended"});
    args.option(options.tail, {.names = "--tail", .value = "N", .help = "print the last N lines of the log"});
    args.option(options.grep,
                {.names = "--grep", .value = "REGEX", .help = "print only matching lines (RE2), before --tail"});
    args.flag(options.compat_exit,
              {.names = "--compat-exit",
               .help = "exit with 0 however the job ended, 1 for an unknown job, 2 after --timeout"});
    describe_place(args, options.place);
    args.exit_code(0, "the job succeeded");
    args.exit_code(1, "the job failed");
    args.exit_code(3, "the job was stopped");
    args.exit_code(6, "no such job");
    args.exit_code(124, "--timeout; the job keeps running");
    args.example("gdnctl ray-wait --cluster local gdnctl-test-me-20260310T165307-0a1b2c3d --show-logs --tail 400");
    args.example("gdnctl ray-wait --match '^gdnctl-test-' --timeout 600", "the newest test job");
    args.see_also("ray-logs");
    args.see_also("ray-stop");
    args.see_also("ray-list");
    args.check([&options]() -> Status {
        if (options.id.has_value() == options.match.has_value()) {
            return fail(ErrorKind::usage, "pass either ID or --match");
        }
        if (!(options.poll_s > 0)) return fail(ErrorKind::usage, "--poll: expected more than 0 seconds");
        if (options.timeout_s && *options.timeout_s < 0) return fail(ErrorKind::usage, "--timeout: expected 0 or more");
        if (options.tail < 0) return fail(ErrorKind::usage, "--tail: expected 0 or more");
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    std::optional<LineRegex> grep;
    if (options.grep) {
        GDNCTL_TRY_ASSIGN(grep, LineRegex::compile(*options.grep, "--grep"));
    }
    if (options.id) GDNCTL_TRY(check_job_id(*options.id));
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options.place, false, context));
    GDNCTL_TRY_ASSIGN(const std::string id, resolve_id(options, *backend));
    return wait(options, id, grep ? &*grep : nullptr, *backend, context);
}

}  // namespace gdnctl::commands::ray_wait

namespace gdnctl::commands {

constinit const cli::Command k_ray_wait_row = cli::make<&ray_wait::describe, &ray_wait::run>(
    "ray-wait", "Jobs", "wait for a job and return its verdict", Tier::http);

}  // namespace gdnctl::commands
