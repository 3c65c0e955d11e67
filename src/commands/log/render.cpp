// gdnctl log render
#include "runlog/render/render.h"

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
#include "runlog/records/record.h"
#include "runlog/records/store.h"

namespace gdnctl::commands::log_render {

struct Options {
    std::optional<std::string> log_file;
    bool check = false;
    bool force = false;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Writes the entries of the records to the log: missing ones in order of their numbers, stale ones in place. "
        "Text outside the `<!-- gdnctl:begin ... -->` markers is never touched. A generated entry that was edited by "
        "hand is replaced only with --force.");
    describe_log_file(args, options.log_file);
    args.flag(options.check,
              {.names = "--check", .help = "write nothing; exit with 1 if the log does not match the records"});
    args.flag(options.force, {.names = "--force", .help = "overwrite generated entries that were edited by hand"});
    args.example("gdnctl log render --check", "in CI");
    args.example("gdnctl log render", "after a merge of the records");
    args.exit_code(static_cast<int>(ExitCode::check_failed), "--check: the log does not match the records");
    args.exit_code(static_cast<int>(ExitCode::conflict), "something needs your decision");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the log cannot be written");
    args.exit_code(static_cast<int>(ExitCode::bad_input), "the records are damaged");
    args.see_also("log append");
    args.see_also("log import");
}

namespace {

void report(const std::filesystem::path& path, const runlog::Placement& placement, std::size_t records, bool written,
            const Options& options, Context& context) {
    if (context.global.json) {
        Json differences = Json::array();
        for (const auto& difference : placement.differences) {
            differences.push_back({{"kind", runlog::name_of(difference.kind)},
                                   {"id", difference.id},
                                   {"iteration", difference.iteration.text()},
                                   {"settled", !options.check && difference.settled},
                                   {"message", difference.message}});
        }
        print_json({{"schema", "gdnctl.log-render/1"},
                    {"log", path.string()},
                    {"records", records},
                    {"written", written},
                    {"differences", std::move(differences)}},
                   context);
        return;
    }
    for (const auto& difference : placement.differences) {
        if (!options.check && difference.settled) {
            log::info("written: {}", difference.message);
        } else {
            log::warning("{}", difference.message);
        }
    }
    if (placement.differences.empty()) log::info("{} matches its {} records", path.string(), records);
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    runlog::PlaceOptions place;
    place.overwrite_edited = options.force;
    if (options.check) {
        GDNCTL_TRY_ASSIGN(const auto files, runlog::read_log_files(path));
        if (!files.text) return tl::unexpected(runlog::missing_log(path));
        for (const auto& warning : files.records.warnings) log::warning("{}", warning);
        const auto current = runlog::current_records(files.records.records);
        GDNCTL_TRY_ASSIGN(const auto placement,
                          runlog::place_records(*files.text, current, files.records.records, place));
        report(path, placement, current.size(), false, options, context);
        return placement.differences.empty() ? ExitCode::ok : ExitCode::check_failed;
    }
    GDNCTL_TRY_ASSIGN(auto writer, runlog::LogWriter::open(path, writer_wait(context)));
    const auto current = runlog::current_records(writer.records());
    GDNCTL_TRY_ASSIGN(const auto placement, runlog::place_records(writer.text(), current, writer.records(), place));
    const bool changes = placement.text != writer.text();
    GDNCTL_TRY(writer.commit({}, placement.text));
    report(path, placement, current.size(), changes, options, context);
    return placement.complete() ? ExitCode::ok : ExitCode::conflict;
}

}  // namespace gdnctl::commands::log_render

namespace gdnctl::commands {

constinit const cli::Command k_log_render_row = cli::make<&log_render::describe, &log_render::run>(
    "log render", "Running log", "write log entries from the records", Tier::none);

}  // namespace gdnctl::commands
