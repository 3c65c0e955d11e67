// gdnctl log import
#include "runlog/import/import.h"

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
#include "platform/clock.h"
#include "platform/context.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"

namespace gdnctl::commands::log_import {

struct Options {
    std::optional<std::string> log_file;
    bool dry_run = false;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Reads the hand-written entries of a log into records (source \"import\", with a confidence for each field). "
        "The log itself does not change. An entry that changed since an earlier import gets a new record that replaces "
        "the old one.");
    describe_log_file(args, options.log_file);
    args.flag(options.dry_run, {.names = "--dry-run", .help = "write nothing; show what would be imported"});
    args.example("gdnctl log import --dry-run --json", "print the records");
    args.example("gdnctl log import && gdnctl log render --check");
    args.exit_code(static_cast<int>(ExitCode::nothing_done), "the log has no hand-written entry");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the records cannot be written; nothing has changed");
    args.exit_code(static_cast<int>(ExitCode::bad_input), "the records are damaged");
    args.see_also("log render");
    args.see_also("log show");
}

namespace {

void report(const std::filesystem::path& path, const runlog::Imported& imported, bool dry_run, Context& context) {
    const auto beside = runlog::records_path(path).string();
    if (context.global.json) {
        Json object = {{"schema", "gdnctl.log-import/1"},
                       {"log", path.string()},
                       {"records", beside},
                       {"dry_run", dry_run},
                       {"imported", imported.records.size()},
                       {"unchanged", imported.unchanged},
                       {"generated", imported.generated},
                       {"entries", Json::array()}};
        for (const Json& record : imported.records) object["entries"].push_back(record);
        print_json(object, context);
        return;
    }
    for (const Json& record : imported.records) {
        log::debug("iteration {}: {}", runlog::iteration_of(record).text(), runlog::id_of(record));
    }
    log::info("{} {} of {} entries into {} ({} already imported, {} generated)", dry_run ? "would import" : "imported",
              imported.records.size(), imported.records.size() + imported.unchanged + imported.generated, beside,
              imported.unchanged, imported.generated);
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    const auto now = context.clock.wall();
    runlog::Imported imported;
    if (options.dry_run) {
        GDNCTL_TRY_ASSIGN(const auto files, runlog::read_log_files(path));
        if (!files.text) return tl::unexpected(runlog::missing_log(path));
        GDNCTL_TRY_ASSIGN(imported, runlog::import_log(*files.text, files.records.records, now));
    } else {
        GDNCTL_TRY_ASSIGN(auto writer, runlog::LogWriter::open(path, writer_wait(context)));
        GDNCTL_TRY_ASSIGN(imported, runlog::import_log(writer.text(), writer.records(), now));
        GDNCTL_TRY(writer.commit(imported.records, writer.text()));
    }
    report(path, imported, options.dry_run, context);
    return imported.records.empty() && imported.unchanged == 0 ? ExitCode::nothing_done : ExitCode::ok;
}

}  // namespace gdnctl::commands::log_import

namespace gdnctl::commands {

constinit const cli::Command k_log_import_row = cli::make<&log_import::describe, &log_import::run>(
    "log import", "Running log", "read hand-written entries into records", Tier::none);

}  // namespace gdnctl::commands
