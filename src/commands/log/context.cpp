// gdnctl log context
#include "platform/context.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "commands/log/common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "platform/terminal.h"

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
    args.option(options.bytes, {.names = "--bytes", .value = "N", .help = "print at most N bytes"});
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

constinit const cli::Command k_log_context_row = cli::make<&log_context::describe, &log_context::run>(
    "log context", "Running log", "print a short summary of the log for a prompt", Tier::none);

}  // namespace gdnctl::commands
