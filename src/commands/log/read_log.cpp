// gdnctl log show, summary and context.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/log/common.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/text.h"
#include "platform/context.h"
#include "platform/terminal.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"
#include "runlog/render/render.h"

namespace gdnctl::commands::log_show {

struct Options {
    std::optional<std::string> log_file;
    std::string iteration;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints one iteration: its entry in the log or, with --json, its record. An entry without a record is shown as "
        "an import would read it.");
    describe_log_file(args, options.log_file);
    args.positional(options.iteration, "N", "iteration number (12, 12a), or `last`",
                    {.complete = cli::Complete::iteration});
    args.example("gdnctl log show 12");
    args.example("gdnctl log show last --json");
    args.exit_code(static_cast<int>(ExitCode::nothing_done), "the log has no such iteration");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the log or its records cannot be read");
    args.exit_code(static_cast<int>(ExitCode::bad_input), "the records are damaged");
    args.see_also({"log summary", "log context"});
}

namespace {

// The entry's own lines, up to the next entry's marker.
std::string entry_text(std::string_view log, const runlog::IterationNumber& iteration) {
    const auto document = runlog::parse_document(log);
    if (!document) return {};
    std::string_view found;
    for (const auto& entry : document->entries) {
        if (entry.number == iteration.number && entry.suffix == iteration.suffix) found = entry.text;
    }
    found = found.substr(0, found.find("<!-- gdnctl:begin "));
    found = found.substr(0, found.find("<!-- gdnctl:end -->"));
    return found.empty() ? std::string() : std::string(text::trim(found)) + "\n";
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    const auto wanted = runlog::parse_iteration_number(options.iteration);
    const bool last = options.iteration == "last";
    if (!wanted && !last) {
        return fail(ErrorKind::usage, fmt::format("not an iteration: {}", options.iteration),
                    "use a number such as 12 or 12a, or `last`");
    }
    GDNCTL_TRY_ASSIGN(const auto loaded, load_history(path));
    const auto& history = loaded.history;
    const auto found = last ? (history.empty() ? history.end() : history.end() - 1)
                            : std::find_if(history.begin(), history.end(),
                                           [&](const Json& record) { return runlog::iteration_of(record) == *wanted; });
    if (history.empty()) {
        return fail(ErrorKind::nothing_done, fmt::format("the log has no iteration yet: {}", path.string()),
                    "`gdnctl log append` adds one");
    }
    if (found == history.end()) {
        return fail(ErrorKind::nothing_done, fmt::format("no iteration {} in {}", options.iteration, path.string()),
                    fmt::format("the last one is {}", runlog::iteration_of(history.back()).text()));
    }
    GDNCTL_TRY_ASSIGN(const Json record, runlog::whole_record(loaded.text, loaded.records, *found));
    std::string text = entry_text(loaded.text, runlog::iteration_of(record));
    text = text.empty() ? runlog::render_entry(record) : text::visible(text);
    if (context.global.json) {
        print_json({{"schema", "gdnctl.log-show/1"}, {"log", path.string()}, {"record", record}, {"entry", text}},
                   context);
    } else {
        context.terminal.out(text);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::log_show

// gdnctl log summary
namespace gdnctl::commands::log_summary {

struct Options {
    std::optional<std::string> log_file;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Summarises a log: the champions in order, the best gain of each coverage slot, and how often iterations "
        "failed and why. Numbers come from the records; entries without a record are read as an import would read "
        "them.");
    describe_log_file(args, options.log_file);
    args.example("gdnctl log summary");
    args.example("gdnctl log summary --json | jq .failures");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the log or its records cannot be read");
    args.exit_code(static_cast<int>(ExitCode::bad_input), "the records are damaged");
    args.see_also({"log context", "log show"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    GDNCTL_TRY_ASSIGN(const auto wanted, target_objective(context));
    GDNCTL_TRY_ASSIGN(const auto loaded, load_history(path));
    Json summary = runlog::summarize(loaded.history, runlog::choose_objective(loaded.history, wanted));
    if (context.global.json) {
        Json object = {{"schema", summary["schema"]}, {"log", path.string()}};
        object.update(summary);
        print_json(object, context);
    } else {
        print_lines("log: " + path.string() + "\n" + runlog::summary_text(summary), context);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::log_summary

// gdnctl log context
namespace gdnctl::commands::log_context {

struct Options {
    std::optional<std::string> log_file;
    std::int64_t bytes = 8192;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints a Markdown summary of a long log for a prompt, in at most --bytes bytes: the champion, counts of "
        "outcomes, the latest iterations, and as many lines for earlier ones as fit.");
    describe_log_file(args, options.log_file);
    args.option(options.bytes, "--bytes N", "print at most N bytes");
    args.check([&options]() -> Status {
        if (options.bytes >= 64 && options.bytes <= (std::int64_t{1} << 30)) return {};
        return fail(ErrorKind::usage, "--bytes: expected 64 bytes to 1 GiB");
    });
    args.example("gdnctl log context --bytes 4096");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the log or its records cannot be read");
    args.exit_code(static_cast<int>(ExitCode::bad_input), "the records are damaged");
    args.see_also("log summary");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    GDNCTL_TRY_ASSIGN(const auto wanted, target_objective(context));
    GDNCTL_TRY_ASSIGN(const auto loaded, load_history(path));
    const std::string text = runlog::context_pack(loaded.history, runlog::choose_objective(loaded.history, wanted),
                                                  static_cast<std::size_t>(options.bytes));
    if (context.global.json) {
        print_json({{"schema", "gdnctl.log-context/1"},
                    {"log", path.string()},
                    {"iterations", loaded.history.size()},
                    {"bytes", text.size()},
                    {"text", text}},
                   context);
    } else {
        context.terminal.out(text);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::log_context

namespace gdnctl::commands {

Rows log_read_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&log_show::describe, &log_show::run>("log show", "Running log", "print one iteration", Tier::none),
        cli::make<&log_summary::describe, &log_summary::run>("log summary", "Running log",
                                                             "summarise champions, slots and failures", Tier::none),
        cli::make<&log_context::describe, &log_context::run>(
            "log context", "Running log", "print a short summary of the log for a prompt", Tier::none)};
    return k_rows;
}

}  // namespace gdnctl::commands
