// gdnctl ray-list, ray-stop, ray-wait and ray-logs: jobs that exist.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include "commands/common.h"
#include "commands/jobs/job_options.h"
#include "commands/table.h"
#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "core/result.h"
#include "core/text.h"
#include "core/tone.h"
#include "jobs/job_destination.h"
#include "jobs/outputs.h"
#include "jobs/run.h"
#include "jobs/stop.h"
#include "jobs/submissions.h"
#include "jobs/watch.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/terminal.h"

namespace gdnctl::commands::ray_list {

struct Options {
    DestinationOptions place;
    bool mine = false, all = false;
    std::optional<JobState> status;
    std::int64_t limit = 50;
};

namespace {

using MaybeState = std::optional<JobState>;
constexpr std::array<cli::Choice<MaybeState>, 5> k_states = {{{"PENDING", JobState::pending},
                                                              {"RUNNING", JobState::running},
                                                              {"STOPPED", JobState::stopped},
                                                              {"SUCCEEDED", JobState::succeeded},
                                                              {"FAILED", JobState::failed}}};

struct Row {
    std::string status, submitted, duration, kind, id;
};

// An id may contain any character; in a table it stays on one line.
std::string on_one_line(std::string_view id) {
    std::string shown;
    for (const char c : text::visible(id)) {
        if (c == '\n' || c == '\t') {
            shown += c == '\n' ? "\\n" : "\\t";
        } else {
            shown += c;
        }
    }
    return shown;
}

Row row_of(const JobDetails& job, const Clock& clock) {
    const auto kind = job.metadata.find("kind");
    Row row{text::visible(status_of(job)), "-", "-", kind == job.metadata.end() ? "-" : kind->second,
            on_one_line(job.submission_id)};
    if (job.start_time) {
        row.submitted = local_time(*job.start_time);
        row.duration = format_duration(
            std::max(job.end_time.value_or(clock.wall()) - *job.start_time, std::chrono::milliseconds(0)));
    }
    return row;
}

// Whether a loop or a sweep submitted it, and not a person.
bool is_of_a_machine(const JobDetails& job) {
    const auto kind = job.metadata.find("kind");
    return is_of_loop(job.submission_id) || (kind != job.metadata.end() && kind->second == "sweep");
}

// Columns are as wide as their contents. The id comes last and is never cut.
std::string table_of(const std::vector<JobDetails>& jobs, const Clock& clock) {
    std::vector<Row> rows = {{"STATUS", "SUBMITTED", "DURATION", "KIND", "ID"}};
    for (const JobDetails& job : jobs) rows.push_back(row_of(job, clock));
    const auto width_of = [&](std::string Row::* column) {
        std::size_t most = 0;
        for (const Row& row : rows) most = std::max(most, (row.*column).size());
        return most;
    };
    const std::size_t status = width_of(&Row::status), submitted = width_of(&Row::submitted),
                      duration = width_of(&Row::duration), kind = width_of(&Row::kind);
    std::string table;
    for (const Row& row : rows) {
        table += fmt::format("{:<{}}  {:<{}}  {:>{}}  {:<{}}  {}\n", row.status, status, row.submitted, submitted,
                             row.duration, duration, row.kind, kind, row.id);
    }
    return table;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Lists jobs, newest first, without those of loops and sweeps. Times are local, with their offset from UTC; the "
        "duration counts from the submission.");
    args.flag(options.all, "--all", "also list the jobs of loops and sweeps; --json always does");
    args.flag(options.mine, "--mine", "list only your own jobs");
    args.option(options.status, k_states, "--status STATUS", "list only jobs in this state");
    args.option(options.limit, "--limit N", "list at most N jobs");
    describe_place(args, options.place);
    args.example("gdnctl ray-list --cluster local --status RUNNING");
    args.see_also({"ray-wait", "ray-logs", "ray-stop"});
    args.check([&options]() -> Status {
        if (options.limit < 1) return fail(ErrorKind::usage, "--limit: expected 1 or more");
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options.place, true, context));
    GDNCTL_TRY_ASSIGN(auto jobs, backend->list({options.mine ? submitter(*backend, context.env) : std::string()}));
    retry_pending_stops(*backend, context);
    std::erase_if(jobs, [&](const JobDetails& job) { return options.status && job.state != *options.status; });
    const auto hidden = options.all || context.global.json ? std::size_t{0} : std::erase_if(jobs, is_of_a_machine);
    const auto found = jobs.size();
    if (found > static_cast<std::size_t>(options.limit)) jobs.resize(static_cast<std::size_t>(options.limit));
    if (context.global.json) {
        Json list = Json::array();
        for (const JobDetails& job : jobs) {
            Json item;
            put_job(item, place_of(*backend, job.submission_id), job, classify(job));
            list.push_back(std::move(item));
        }
        Json out;
        out["schema"] = "gdnctl.ray-list/1";
        out["jobs"] = std::move(list);
        print_json(out, context);
        return ExitCode::ok;
    }
    if (jobs.empty() && hidden == 0) log::info("no jobs");
    if (!jobs.empty())
        print_lines(toned_verdicts(table_of(jobs, context.clock), context.terminal.color_out()), context);
    if (jobs.size() < found) log::info("{} more; --limit shows them", found - jobs.size());
    if (hidden > 0) {
        log::info("{} job{} of loops and sweeps not shown; --all shows them", hidden, hidden == 1 ? "" : "s");
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::ray_list

// gdnctl ray-stop: ask a job to stop.
namespace gdnctl::commands::ray_stop {

struct Options {
    DestinationOptions place;
    std::string id;
    bool wait = false;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Asks a job to stop: SIGTERM to all its processes, SIGKILL after 3 seconds (RAY_JOB_STOP_WAIT_TIME_S in the "
        "job's environment). A local job that is still waiting stops at once. On a cluster, the job is started first "
        "and then stopped, by this or a later command.");
    args.positional(options.id, "ID", "submission id of the job, or `last`", {.complete = cli::Complete::job});
    args.flag(options.wait, "--wait", "return when the job has ended");
    describe_place(args, options.place);
    args.exit_code(0, "the job will stop, or had already ended");
    args.exit_code(6, "no such job");
    args.example("gdnctl ray-stop --cluster local ID --wait");
    args.see_also({"ray-wait", "ray-list"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY(check_job_id(options.id));
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options.place, !options.wait, context));
    GDNCTL_TRY_ASSIGN(const std::string id, job_named(options.id, *backend, context));
    GDNCTL_TRY_ASSIGN(const StoppedJob job, stop_job(*backend, id, {options.wait, {}}, context));
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.ray-stop/1";
        put_job(out, place_of(*backend, id), job.details, classify(job.details));
        out["stopped"] = job.stopped;
        print_json(out, context);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::ray_stop

// gdnctl ray-wait: wait for a job to end and return its verdict.
namespace gdnctl::commands::ray_wait {

struct Options {
    DestinationOptions place;
    std::optional<std::string> id;
    std::optional<std::string> match;
    double poll_s = 5.0;
    std::optional<double> timeout_s;
    bool show_logs = false;
    std::int64_t tail = 200;
    std::optional<std::string> grep;
    bool compat_exit = false;
    std::optional<std::string> outputs;
};

namespace {

std::chrono::milliseconds seconds(double s) {
    constexpr double k_longest = 1e9;  // about 30 years: keeps the conversion in range
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(s, k_longest) * 1000.0));
}

// The given id, or that of the newest job that --match matches.
Result<std::string> resolve_id(const Options& options, JobBackend& backend, const Context& context) {
    if (options.id) return job_named(*options.id, backend, context);
    GDNCTL_TRY_ASSIGN(const LineRegex regex, LineRegex::compile(*options.match, "--match"));
    GDNCTL_TRY_ASSIGN(const auto jobs, backend.list({}));
    for (const JobDetails& job : jobs) {
        if (!regex.matches(job.submission_id)) continue;
        log::info("submission_id={}", job.submission_id);
        return job.submission_id;
    }
    return fail(ErrorKind::remote_missing, "no job matches '" + *options.match + "'",
                "`" + job_command(backend, "list") + "` shows them");
}

// Prints the whole job for readers who did not submit it: what ran, and what its log reported.
void print_end(const JobDetails& job, const JobVerdict& verdict, const JobOutput& output,
               const std::vector<StoredOutput>& outputs, const JobBackend& backend, Context& context) {
    const auto of_submission = [&](const char* key) {
        const auto it = job.metadata.find(key);
        return it == job.metadata.end() ? Json(nullptr) : Json(it->second);
    };
    Json out;
    out["schema"] = "gdnctl.ray-wait/1";
    put_job(out, place_of(backend, job.submission_id), job, verdict);
    put_end(out, job, outputs);
    out["kind"] = of_submission("kind");
    out["target"] = of_submission("target");
    out["entrypoint"] = own_command(job.entrypoint);
    out["tests"] = tests_json(output.pytest());
    out["device"] = device_json(output.device());
    out["verdict"] = verdict_json(output.verdicts());
    out["profile"] = profile_json(output.profile());
    out["tpu_evidence"] = is_tpu_evidence(place_of(backend, job.submission_id), verdict, job, output);
    print_json(out, context);
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

struct JudgedEnd {
    JobVerdict verdict;
    JobOutput output;  // empty if it was not needed
};

// The verdict on a job that has ended, with its output where that can say more.
Result<JudgedEnd> judge_end(const JobDetails& details, const std::string& id, JobBackend& backend, Context& context) {
    JudgedEnd end{classify(details), {}};
    // Results may be anywhere in the log; signs of a bad node are near its end.
    constexpr std::size_t k_signs = 200;
    if (!context.global.json && end.verdict.exit != ExitCode::check_failed) return end;
    auto read = read_output(backend, id, context.global.json ? std::nullopt : std::optional(k_signs));
    if (!read && !is_log_trouble(read.error())) return tl::unexpected(std::move(read).error());
    if (!read) log::warning("{}", read.error().text());
    if (read) end.output = std::move(*read);
    end.verdict = classify(details, end.output.tail());
    return end;
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
            print_end(last, {failure_of(watched.error()), exit_code_of(kind)}, {}, {}, backend, context);
        }
        if (options.compat_exit && kind == ErrorKind::remote_missing) {
            log::error("{}", watched.error().text());
            return compatible(watched);
        }
        return tl::unexpected(std::move(watched).error());
    }
    JudgedEnd end{{FailureClass::timeout, ExitCode::timeout}, {}};
    if (!watched->timed_out) {
        GDNCTL_TRY_ASSIGN(end, judge_end(watched->details, id, backend, context));
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
    retry_pending_stops(backend, context);
    std::vector<StoredOutput> outputs;
    Status fetched;
    if (!watched->timed_out) {
        outputs = outputs_of(backend, id);
        ask_for_cause(backend, watched->details);
        show_job_end(watched->details, outputs);
        if (options.outputs) {
            fetched = fetch_outputs(watched->details, outputs, context.cwd / *options.outputs, context);
        }
    }
    if (context.global.json) print_end(watched->details, end.verdict, end.output, outputs, backend, context);
    const ExitCode exit = options.compat_exit ? compatible(watched) : end.verdict.exit;
    if (fetched) return exit;
    if (exit == ExitCode::ok) return tl::unexpected(std::move(fetched).error());
    log::error("{}", fetched.error().text());
    return exit;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Waits for a job and exits with its status. Status lines go to stderr, the log to stdout (to stderr with "
        "--json). Ctrl-C and --timeout leave the job running.");
    args.positional(options.id, "ID", "submission id of the job, or `last`", {.complete = cli::Complete::job});
    args.option(options.match, "--match REGEX", "wait for the newest job whose id matches, instead of ID");
    args.option(options.poll_s, "--poll SECONDS", "polling interval");
    args.option(options.timeout_s, "--timeout SECONDS", "give up after this time");
    args.flag(options.show_logs, "--show-logs", "print the log after the job has ended");
    args.option(options.tail, "--tail N", "print the last N lines of the log");
    args.option(options.grep, "--grep REGEX", "print only matching lines (RE2), before --tail");
    args.option(options.outputs, "--outputs DIR", "folder that gets what the job stored in $GDNCTL_OUTPUT_DIR",
                {.complete = cli::Complete::directory});
    args.flag(options.compat_exit, "--compat-exit",
              "exit with 0 however the job ended, 1 for an unknown job, 2 after --timeout");
    describe_place(args, options.place);
    args.exit_code(0, "the job succeeded");
    args.exit_code(1, "the job failed");
    args.exit_code(3, "the job was stopped");
    args.exit_code(6, "no such job");
    args.exit_code(7, "--outputs: what was stored has another SHA-256 than recorded");
    args.exit_code(124, "--timeout; the job keeps running");
    args.example("gdnctl ray-wait --cluster local gdnctl-test-me-20260310T165307-0a1b2c3d --show-logs --tail 400");
    args.example("gdnctl ray-wait --match '^gdnctl-test-' --timeout 600", "the newest test job");
    args.see_also({"ray-logs", "ray-stop", "ray-list"});
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
    GDNCTL_TRY_ASSIGN(const std::string id, resolve_id(options, *backend, context));
    return wait(options, id, grep ? &*grep : nullptr, *backend, context);
}

}  // namespace gdnctl::commands::ray_wait

namespace gdnctl::commands {

namespace {

constexpr std::size_t k_piece = std::size_t{256} << 10;
constexpr std::string_view k_name = "a temporary file for the log";

// Length of the part that ends with a complete character; the start of an incomplete one is left for the next piece.
std::size_t whole_characters(std::string_view bytes) {
    constexpr std::size_t k_longest = 4;
    for (std::size_t back = 1; back <= std::min(k_longest, bytes.size()); ++back) {
        const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
        if ((byte & 0xC0U) == 0x80U) continue;  // continues a character
        const std::size_t length = byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : byte >= 0xC0U ? 2 : 1;
        return length > back ? bytes.size() - back : bytes.size();
    }
    return bytes.size();
}

// Buffers a log for a JSON object in a temporary file: the log may be larger than memory, and the keys before it are
// known only when it has ended.

class LogSpool {
public:
    // Error: local_io.
    static Result<LogSpool> open() {
        std::error_code problem;
        const std::filesystem::path folder = std::filesystem::temp_directory_path(problem);
        std::string path = ((problem ? std::filesystem::path("/tmp") : folder) / "gdnctl-log.XXXXXX").string();
        UniqueFd fd(mkostemp(path.data(), O_CLOEXEC));
        if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "create", path, errno));
        unlink(path.c_str());
        return LogSpool(std::move(fd));
    }

    // After a failure (disk full) further bytes are dropped; status() reports it.
    void append(std::string_view bytes) {
        if (m_problem == 0) m_problem = write_fully(m_fd.get(), bytes);
    }

    Status status() const {
        if (m_problem == 0) return {};
        return tl::unexpected(file_error(ErrorKind::local_io, "write", k_name, m_problem));
    }

    // Prints all of it as a JSON string, with the quotes; bytes that are not UTF-8 are replaced.
    Status print(Terminal& terminal) const {
        terminal.out("\"");
        std::string held;
        for (off_t at = 0;;) {
            const std::size_t before = held.size();
            held.resize(before + k_piece);
            const ssize_t n = pread(m_fd.get(), held.data() + before, k_piece, at);
            if (n < 0 && errno != EINTR) {
                return tl::unexpected(file_error(ErrorKind::local_io, "read", k_name, errno));
            }
            held.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
            if (n < 0) continue;
            at += n;
            const std::size_t size = n == 0 ? held.size() : whole_characters(held);
            const std::string quoted = to_text(Json(held.substr(0, size)));
            terminal.out(std::string_view(quoted).substr(1, quoted.size() - 2));
            held.erase(0, size);
            if (n == 0 || terminal.out_closed()) break;
        }
        terminal.out("\"");
        return {};
    }

private:
    explicit LogSpool(UniqueFd fd) : m_fd(std::move(fd)) {}

    UniqueFd m_fd;
    int m_problem = 0;
};

}  // namespace

}  // namespace gdnctl::commands

// gdnctl ray-logs: print a job's log, or follow it.
namespace gdnctl::commands::ray_logs {

struct Options {
    DestinationOptions place;
    std::string id;
    std::int64_t tail = 400;
    std::optional<std::string> grep;
    bool follow = false;
};

namespace {

// Prints the last lines, then new ones until the job has ended.
Status follow(const Options& options, const LineRegex* grep, const LogFilter::Out& out, JobBackend& backend,
              Context& context) {
    const auto tail = static_cast<std::size_t>(options.tail);
    const bool whole = grep != nullptr;
    GDNCTL_TRY_ASSIGN(const auto log, backend.open_log(options.id, {whole ? std::nullopt : std::optional(tail), true}));
    LogFilter filter(grep, whole ? std::optional(tail) : std::nullopt, out);
    (void)log->pump([&](std::string_view bytes) {
        filter.feed(bytes);
        return !context.terminal.out_closed() && !context.stop.stop_requested();
    });
    filter.release();  // what could not be read is tried again, and told, below
    const auto sink = [&](std::string_view more) { filter.feed(more); };
    WatchOptions watch;
    watch.leave_when_closed = true;
    GDNCTL_TRY(follow_job(backend, options.id, *log, watch, sink, context));
    filter.finish();
    return {};
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about("Prints the end of a job's log, byte for byte, on stdout.");
    args.positional(options.id, "ID", "submission id of the job, or `last`", {.complete = cli::Complete::job});
    args.option(options.tail, "--tail N", "print the last N lines");
    args.option(options.grep, "--grep REGEX", "print only matching lines (RE2), before --tail");
    args.flag(options.follow, "-f,--follow", "keep printing until the job has ended");
    describe_place(args, options.place);
    args.exit_code(0, "the log was printed, however the job ended; with --follow also if its end could not be read");
    args.exit_code(6, "no such job");
    args.example("gdnctl ray-logs --cluster local ID --tail 400 --grep 'profiler|trace|ERROR|Traceback'");
    args.example("gdnctl ray-logs --cluster local ID --follow");
    args.see_also({"ray-wait", "ray-list"});
    args.check([&options]() -> Status {
        if (options.tail < 0) return fail(ErrorKind::usage, "--tail: expected 0 or more");
        return {};
    });
}

namespace {

Status print(const Options& options, const LineRegex* grep, const LogFilter::Out& out, JobBackend& backend,
             Context& context) {
    if (options.follow) return follow(options, grep, out, backend, context);
    return print_log(backend, options.id, grep, static_cast<std::size_t>(options.tail), out, context);
}

Status print_json(const Options& options, const LineRegex* grep, JobBackend& backend, Context& context) {
    GDNCTL_TRY_ASSIGN(LogSpool spool, LogSpool::open());
    JobOutput output;
    const LogFilter::Out collect = [&](std::string_view bytes) {
        spool.append(bytes);
        output.feed(bytes);
    };
    GDNCTL_TRY(print(options, grep, collect, backend, context));
    GDNCTL_TRY(spool.status());
    output.finish();
    GDNCTL_TRY_ASSIGN(const JobDetails details, backend.details(options.id));
    Json object;
    object["schema"] = "gdnctl.ray-logs/1";
    put_job(object, place_of(backend, options.id), details, classify(details, output.tail()));
    std::string text = to_text(object);
    text.back() = ',';
    context.terminal.out(text + "\"logs\":");
    GDNCTL_TRY(spool.print(context.terminal));
    context.terminal.out("}\n");
    return {};
}

}  // namespace

Result<ExitCode> run(const Options& asked, Context& context) {
    GDNCTL_TRY(check_job_id(asked.id));
    std::optional<LineRegex> grep;
    if (asked.grep) {
        GDNCTL_TRY_ASSIGN(grep, LineRegex::compile(*asked.grep, "--grep"));
    }
    const LineRegex* regex = grep ? &*grep : nullptr;
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(asked.place, !asked.follow, context));
    Options options = asked;
    GDNCTL_TRY_ASSIGN(options.id, job_named(asked.id, *backend, context));
    if (context.global.json) {
        GDNCTL_TRY(print_json(options, regex, *backend, context));
    } else {
        GDNCTL_TRY(print(options, regex, log_printer(context), *backend, context));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::ray_logs

namespace gdnctl::commands {

Rows ray_job_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&ray_wait::describe, &ray_wait::run>("ray-wait", "Jobs", "wait for a job and return its verdict",
                                                       Tier::http)
            .also("job wait"),
        cli::make<&ray_logs::describe, &ray_logs::run>("ray-logs", "Jobs", "print or follow a job's log", Tier::http)
            .also("job logs"),
        cli::make<&ray_stop::describe, &ray_stop::run>("ray-stop", "Jobs", "ask a job to stop", Tier::http)
            .also("job stop"),
        cli::make<&ray_list::describe, &ray_list::run>("ray-list", "Jobs", "list jobs", Tier::http).also("job list")};
    return k_rows;
}

}  // namespace gdnctl::commands
