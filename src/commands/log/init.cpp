// gdnctl log init
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "commands/log/common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/log.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "runlog/parse/log.h"
#include "runlog/render/templates.h"

namespace gdnctl::commands::log_init {

struct Options {
    std::optional<std::string> log_file;
    runlog::Template style = runlog::Template::hillclimb;
};

namespace {

constexpr cli::Choice<runlog::Template> k_styles[] = {
    {"hillclimb", runlog::Template::hillclimb, "numbered iterations"},
    {"experiment", runlog::Template::experiment, "dated experiments"}};

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Creates a running log: title, goal, loop contract, the entry template in a code fence, and an empty list of "
        "iterations. Missing folders are created. An existing file is never touched.");
    describe_log_file(args, options.log_file);
    args.option(options.style, k_styles, {.names = "--template", .value = "STYLE", .help = "style of the log"});
    args.example("gdnctl log init", "the log of the selected target");
    args.example("gdnctl log init --template experiment --log-file notes/experiment-log.md");
    args.exit_code(static_cast<int>(ExitCode::conflict), "the file exists");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the file cannot be written");
    args.see_also("log append");
    args.see_also("lint-log");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    std::error_code problem;
    std::filesystem::create_directories(path.parent_path(), problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "create", path.parent_path(), problem.value()));
    GDNCTL_TRY_ASSIGN(const auto lock, FileLock::acquire_folder(path.parent_path(), writer_wait(context)));
    if (std::filesystem::exists(std::filesystem::symlink_status(path, problem))) {
        return fail(ErrorKind::conflict, fmt::format("{} already exists", path.string()),
                    "use `gdnctl log append` to add to it, or --log-file to name another one");
    }
    GDNCTL_TRY(atomic_replace(path, runlog::log_head(options.style)));
    if (context.global.json) {
        print_json({{"schema", "gdnctl.log-init/1"},
                    {"log", path.string()},
                    {"template", options.style == runlog::Template::experiment ? "experiment" : "hillclimb"}},
                   context);
    } else {
        log::info("wrote {}", path.string());
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::log_init

namespace gdnctl::commands {

constinit const cli::Command k_log_init_row =
    cli::make<&log_init::describe, &log_init::run>("log init", "Running log", "start a running log", Tier::none);

}  // namespace gdnctl::commands
