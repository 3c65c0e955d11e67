// gdnctl log new
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
#include "platform/fs.h"
#include "platform/terminal.h"
#include "runlog/records/append.h"
#include "runlog/render/templates.h"

namespace gdnctl::commands::log_new {

struct Options {
    std::optional<std::string> log_file;
    std::optional<std::string> title;
    std::optional<std::string> hypothesis;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Starts an iteration: reserves the next number, writes an empty record next to the log "
        "(iteration-NNN-record.json) and prints the entry's skeleton. Fill in the record and pass it to `gdnctl log "
        "append --record`, or write the entry by hand from the skeleton.");
    describe_log_file(args, options.log_file);
    args.option(options.title, {.names = "--title", .value = "TEXT", .help = "title of the entry"});
    args.option(options.hypothesis, {.names = "--hypothesis", .value = "TEXT", .help = "expected result, and why"});
    args.example("gdnctl log new --title \"Fuse the gate into the chunk kernel\"");
    args.exit_code(static_cast<int>(ExitCode::conflict), "another writer has locked the log");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the record cannot be written");
    args.see_also("log append");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    GDNCTL_TRY_ASSIGN(const auto writer, runlog::LogWriter::open(path, writer_wait(context)));
    GDNCTL_TRY_ASSIGN(const auto document, runlog::parse_document(writer.text()));
    const auto iteration = runlog::next_free_iteration(writer, document);
    const auto now = context.clock.wall();
    Json record = runlog::empty_record(runlog::make_record_id(now, iteration), iteration, now);
    if (runlog::template_of(document) == runlog::Template::experiment) record["kind"] = "experiment";
    if (options.title) record["title"] = *options.title;
    if (options.hypothesis) record["idea"]["hypothesis"] = *options.hypothesis;
    if (auto facts = facts_for(path, context)) {
        const auto head = facts->resolve("HEAD");
        if (head && *head) record["base"]["commit"] = (*head)->sha;
    }
    const auto draft = runlog::draft_path(path, iteration.number);
    GDNCTL_TRY(atomic_replace(draft, to_text(record, 2) + "\n"));
    const std::string skeleton = runlog::entry_skeleton(record);
    if (context.global.json) {
        print_json({{"schema", "gdnctl.log-new/1"},
                    {"log", path.string()},
                    {"record_file", draft.string()},
                    {"id", runlog::id_of(record)},
                    {"iteration", iteration.text()},
                    {"record", record},
                    {"skeleton", skeleton}},
                   context);
    } else {
        context.terminal.out(skeleton);
        log::info("record to fill in: {}", draft.string());
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::log_new

namespace gdnctl::commands {

constinit const cli::Command k_log_new_row = cli::make<&log_new::describe, &log_new::run>(
    "log new", "Running log", "start a record and print an entry skeleton", Tier::git);

}  // namespace gdnctl::commands
