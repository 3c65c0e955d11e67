// gdnctl evolve import and export: candidates from and for other programs.
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/log/common.h"
#include "commands/loop/evolve_common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "commands/target.h"
#include "core/exit_code.h"
#include "core/json.h"
#include "loop/evolve/import.h"
#include "platform/terminal.h"
#include "target/target.h"

namespace gdnctl::commands {

namespace evolve_import {

struct Options {
    std::string from;
    std::optional<std::string> map;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Starts a run from the kernels that the contest's Python agent left: one candidate per file, in the order of "
        "their numbers. DIR is the folder of one task; import several tasks one by one, since a run has one target. "
        "Scores measured elsewhere are shown but not trusted: `codex-loop --mode evolve --resume` measures the "
        "candidates again before it tries anything new.");
    args.option(options.from, {.names = "--from",
                               .value = "DIR",
                               .help = "folder of one task, with proposal_*.py",
                               .complete = cli::Complete::directory,
                               .required = true});
    args.option(options.map, {.names = "--map",
                              .value = "REGEX=PATH",
                              .help = "import files that match REGEX as the target's file PATH",
                              .default_text = "the target's only kernel file"});
    args.example("gdnctl evolve import --from outputs/evolve_run/gdn_decode");
    args.see_also("docs/evolve.md");
}

Result<ExitCode> run(const Options& options, Context& context) {
    loop::evolve::EvolveRequest request;
    GDNCTL_TRY_ASSIGN(request.target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(const auto report,
                      loop::evolve::import_contest(context.cwd / options.from, options.map, request, context));
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-import/1"},
                    {"run", report.run},
                    {"log_dir", report.log_dir.string()},
                    {"imported", report.steps},
                    {"to_judge", report.to_judge},
                    {"best_there", report.best}},
                   context);
    } else {
        context.terminal.out(fmt::format("run {}: {} candidates, {} to measure; the best one there was {}\n",
                                         report.run, report.steps, report.to_judge, report.best));
    }
    return ExitCode::ok;
}

}  // namespace evolve_import

namespace evolve_export {

struct Options {
    evolve::RunChoice run;
    std::optional<std::string> id;
    bool contest = true;
    std::string to;
};

constexpr std::array<cli::Choice<bool>, 1> k_layouts = {{{"contest", true, "those of the contest's Python agent"}}};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Writes a candidate and its ancestors as proposal_0_1 and tune_0_N, so that the contest's Python agent can "
        "resume from them. The directory must be new or empty.");
    args.positional(options.id, {.name = "ID", .help = "as for `evolve show`; without it the best candidate"});
    args.option(options.contest, k_layouts,
                {.names = "--layout", .value = "LAYOUT", .help = "names and files to write"});
    args.option(options.to, {.names = "--to",
                             .value = "DIR",
                             .help = "new or empty directory",
                             .complete = cli::Complete::directory,
                             .required = true});
    evolve::describe_run(args, options.run);
    args.example("gdnctl evolve export --layout contest --to contest best");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const loop::evolve::RunView view, evolve::load(options.run, context));
    GDNCTL_TRY_ASSIGN(const int attempt, loop::evolve::attempt_of(view.state, options.id.value_or("best")));
    GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(const int written,
                      loop::evolve::export_contest(view, attempt, context.cwd / options.to, target, context));
    if (context.global.json) {
        print_json({{"schema", "gdnctl.evolve-export/1"},
                    {"run", view.state.run},
                    {"attempt", attempt},
                    {"directory", (context.cwd / options.to).string()},
                    {"written", written}},
                   context);
    } else {
        context.terminal.out(fmt::format("wrote {} steps to {}\n", written, (context.cwd / options.to).string()));
    }
    return ExitCode::ok;
}

}  // namespace evolve_export

constinit const cli::Command k_evolve_import_row = cli::make<&evolve_import::describe, &evolve_import::run>(
    "evolve import", "Loop", "start a run from another program's candidates", Tier::git);
constinit const cli::Command k_evolve_export_row = cli::make<&evolve_export::describe, &evolve_export::run>(
    "evolve export", "Loop", "write a candidate's ancestry for another program", Tier::git);

}  // namespace gdnctl::commands
