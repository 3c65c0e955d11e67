// gdnctl ray-logs: print a job's log, or follow it.
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "commands/jobs/job_options.h"
#include "commands/log/spool.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/json.h"
#include "core/log.h"
#include "jobs/place.h"
#include "jobs/watch.h"
#include "platform/terminal.h"

namespace gdnctl::commands::ray_logs {

struct Options {
    PlaceOptions place;
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
    args.positional(options.id,
                    {.name = "ID", .help = "submission id of the job", .complete = cli::Complete::local_job});
    args.option(options.tail, {.names = "--tail", .value = "N", .help = "print the last N lines"});
    args.option(options.grep,
                {.names = "--grep", .value = "REGEX", .help = "print only matching lines (RE2), before --tail"});
    args.flag(options.follow, {.names = "-f,--follow", .help = "keep printing until the job has ended"});
    describe_place(args, options.place);
    args.exit_code(0, "the log was printed, however the job ended; with --follow also if its end could not be read");
    args.exit_code(6, "no such job");
    args.example("gdnctl ray-logs --cluster local ID --tail 400 --grep 'profiler|trace|ERROR|Traceback'");
    args.example("gdnctl ray-logs --cluster local ID --follow");
    args.see_also("ray-wait");
    args.see_also("ray-list");
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

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY(check_job_id(options.id));
    std::optional<LineRegex> grep;
    if (options.grep) {
        GDNCTL_TRY_ASSIGN(grep, LineRegex::compile(*options.grep, "--grep"));
    }
    const LineRegex* regex = grep ? &*grep : nullptr;
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options.place, !options.follow, context));
    if (context.global.json) {
        GDNCTL_TRY(print_json(options, regex, *backend, context));
    } else {
        GDNCTL_TRY(print(options, regex, log_printer(context), *backend, context));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::ray_logs

namespace gdnctl::commands {

constinit const cli::Command k_ray_logs_row =
    cli::make<&ray_logs::describe, &ray_logs::run>("ray-logs", "Jobs", "print or follow a job's log", Tier::http);

}  // namespace gdnctl::commands
