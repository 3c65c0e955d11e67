// gdnctl sweep report
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/args.h"
#include "commands/rows.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "sweep/parse.h"
#include "sweep/report.h"

namespace gdnctl::commands::sweep_report {

enum class Format { table, json, patch, markdown, html };

struct Options {
    std::vector<std::string> logs;
    Format format = Format::table;
    bool strict = false;
    std::optional<std::int64_t> shards;
    std::string device_kind, dtype;
    std::optional<std::string> comparisons;
};

namespace {

constexpr std::size_t k_log_limit = std::size_t{256} << 20;

constexpr std::array<cli::Choice<Format>, 5> k_formats = {
    {{"table", Format::table, "for a terminal"},
     {"json", Format::json, "gdnctl.sweep-report/1, as --json"},
     {"patch", Format::patch, "rows of upstream's tuned table for the winners"},
     {"markdown", Format::markdown, "tables for a running log"},
     {"html", Format::html, "one page with a plot"}}};

Result<std::string> read_log(const std::string& name, const Context& context) {
    if (name == "-") return read_descriptor(STDIN_FILENO, "standard input", k_log_limit);
    return read_file(context.cwd / name, {k_log_limit, ErrorKind::usage});
}

std::string text_of(Format format, const sweep::Report& report) {
    switch (format) {
        case Format::json: {
            Json out = {{"schema", "gdnctl.sweep-report/1"}};
            out.update(sweep::report_json(report));
            return to_text(out, 2) + "\n";
        }
        case Format::patch: return sweep::report_patch(report);
        case Format::markdown: return sweep::report_markdown(report);
        case Format::html: return sweep::report_html(report);
        case Format::table: break;
    }
    return sweep::report_table(report);
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Reads the result lines of marin's tune and bench scripts for the fused cross-entropy, and journals of `sweep "
        "run`, from any mix of logs. Prints rates per chip, MFU, why configurations failed, and the best configuration "
        "of each bucket. Figures that count several shards or chips, or the forward twice, are corrected and listed; "
        "figures that contradict each other are warnings.");
    args.positional(options.logs, {"LOG", "a log or a journal; `-` is standard input", cli::Complete::file});
    args.option(options.format, k_formats, {.names = "--format", .value = "FORMAT", .help = "output format"});
    args.flag(options.strict, {.names = "--strict", .help = "exit with 1 if there are warnings"});
    args.option(options.shards, {.names = "--shards",
                                 .value = "N",
                                 .help = "shards of the bench script's batch, if the log does not say",
                                 .default_text = "1"});
    args.option(options.device_kind, {.names = "--device-kind",
                                      .value = "KIND",
                                      .help = "device kind, if the log does not say: \"TPU v5\"",
                                      .default_text = "unknown"});
    args.option(options.dtype, {.names = "--dtype",
                                .value = "DTYPE",
                                .help = "dtype of x and w, if the log does not say",
                                .default_text = "unknown"});
    args.option(options.comparisons, {.names = "--comparisons",
                                      .value = "BASE",
                                      .help = "compare every implementation with this one, shape by shape"});
    args.exit_code(1, "--strict, and there are warnings");
    args.exit_code(9, "no log has a result line");
    args.example("gdnctl sweep report tune.log --device-kind 'TPU v5'", "one log as a table");
    args.example("gdnctl sweep report bench-*.log --comparisons xla --format markdown",
                 "compared with XLA, for a running log");
    args.example("gdnctl ray-logs JOB | gdnctl sweep report - --json", "as gdnctl.sweep-report/1");
    args.see_also("sweep run");
    args.see_also("ce-infer");
    args.check([&options]() -> Status {
        if (options.logs.empty()) return fail(ErrorKind::usage, "LOG is missing", "name one or more logs, or `-`");
        if (options.shards.value_or(1) < 1) return fail(ErrorKind::usage, "--shards: expected 1 or more");
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    const sweep::Assumed assumed{options.device_kind, options.dtype, options.shards};
    std::vector<sweep::Record> records;
    for (const std::string& name : options.logs) {
        GDNCTL_TRY_ASSIGN(const std::string text, read_log(name, context));
        for (sweep::Record& r : sweep::parse_results(text, name, assumed)) records.push_back(std::move(r));
    }
    if (records.empty()) {
        return fail(ErrorKind::bad_input, fmt::format("no result line in {}", text::join(options.logs, ", ")),
                    "expected the output of marin's tune or bench script of the fused cross-entropy, or a journal of "
                    "`gdnctl sweep run`");
    }
    GDNCTL_TRY_ASSIGN(const sweep::Report report, sweep::make_report(std::move(records), options.comparisons));
    context.terminal.out(text_of(context.global.json ? Format::json : options.format, report));
    return options.strict && !report.warnings.empty() ? ExitCode::check_failed : ExitCode::ok;
}

}  // namespace gdnctl::commands::sweep_report

namespace gdnctl::commands {

constinit const cli::Command k_sweep_report_row =
    cli::make<&sweep_report::describe, &sweep_report::run>("sweep report", "Jobs",
                                                           "compare block sizes from the logs of sweeps", Tier::none)
        .without_config();

}  // namespace gdnctl::commands
