// gdnctl loop-report: a report of a run.
#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "commands/log/common.h"
#include "commands/loop/loop_common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/log.h"
#include "core/redact.h"
#include "loop/evolve/report.h"
#include "loop/report/data.h"
#include "loop/report/verdict_words.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/terminal.h"

namespace gdnctl::commands::loop_report {

struct Options {
    std::optional<std::string> log_dir;
    std::optional<std::string> html;
};

using namespace loop::report;

namespace {

Result<ExitCode> report_evolve(const Options& options, const std::filesystem::path& log_dir, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto view, loop::evolve::load_evolve(log_dir));
    if (options.html) {
        GDNCTL_TRY(atomic_replace(context.cwd / *options.html, loop::evolve::report_html(view)));
        log::info("report of {} attempts: {}", view.state.attempts.size() - 1, (context.cwd / *options.html).string());
    }
    if (context.global.json) {
        Json json = {{"schema", "gdnctl.loop-report/1"}};
        json.update(loop::evolve::report_json(view));
        print_json(json, context);
    } else if (!options.html) {
        context.terminal.out(loop::evolve::report_markdown(view));
    }
    return ExitCode::ok;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints a report of a run in Markdown: champions and noise, outcomes, failures by class, cost, ideas that "
        "failed repeatedly, slots, flaky tests, and every iteration with its reason.");
    args.about(
        "--html writes a self-contained page instead, light or dark like your system: the metric over the iterations "
        "with champions and noise band, outcomes over time, cost, failures, and the evidence for each iteration.");
    describe_loop_dir(args, options.log_dir);
    args.option(options.html, {.names = "--html",
                               .value = "PATH",
                               .help = "write the report to this file as an HTML page",
                               .complete = cli::Complete::file});
    args.check([&options]() -> Status {
        if (options.html && options.html->empty()) return fail(ErrorKind::usage, "--html: the path is empty");
        return {};
    });
    args.example("gdnctl loop-report > report.md");
    args.example("gdnctl loop-report --html report.html");
    args.exit_code(static_cast<int>(ExitCode::bad_input), "ledger or coverage.json is malformed");
    args.see_also("loop-explain");
    args.see_also("docs/loop-reports.md");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto log_dir, loop_dir(options.log_dir, context));
    if (loop::evolve::is_evolve_run(log_dir)) return report_evolve(options, log_dir, context);
    GDNCTL_TRY_ASSIGN(const Report report, make_report(log_dir));
    if (options.html) {
        GDNCTL_TRY(atomic_replace(context.cwd / *options.html, report_html(report)));
        log::info("report of {} iterations: {}", report.run.view.iterations.size(),
                  (context.cwd / *options.html).string());
    }
    if (context.global.json) {
        print_json(report_json(report), context);
    } else if (!options.html) {
        context.terminal.out(report_markdown(report));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::loop_report

namespace gdnctl::commands {

constinit const cli::Command k_loop_report_row =
    cli::make<&loop_report::describe, &loop_report::run>("loop-report", "Loop", "write a report of a run", Tier::none);

}  // namespace gdnctl::commands
