// gdnctl log summary
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "commands/log/common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "platform/context.h"
#include "platform/terminal.h"

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
    args.see_also("log context");
    args.see_also("log show");
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
        context.terminal.out("log: " + path.string() + "\n" + runlog::summary_text(summary));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::log_summary

namespace gdnctl::commands {

constinit const cli::Command k_log_summary_row = cli::make<&log_summary::describe, &log_summary::run>(
    "log summary", "Running log", "summarise champions, slots and failures", Tier::none);

}  // namespace gdnctl::commands
