// gdnctl log stamp
#include "runlog/render/stamp.h"

#include <algorithm>
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
#include "core/json_fields.h"
#include "core/log.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"
#include "runlog/render/render.h"

namespace gdnctl::commands::log_stamp {

struct Options {
    std::optional<std::string> log_file;
    std::string commit;
    std::optional<std::string> record;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Writes a commit into the last entry if that entry says `Commit: this commit` or `Commit: (pending)`; any "
        "other value is left alone. An entry that was rendered from a record gets a corrected record and is rendered "
        "again. --record stamps that iteration instead.");
    args.about(
        "The log is a tracked file. Stamping it after the commit leaves the tree dirty, and `git revert` of that "
        "commit then fails. Commit the stamped log separately.");
    describe_log_file(args, options.log_file);
    args.option(options.commit, {.names = "--commit", .value = "SHA", .help = "the commit", .required = true});
    args.option(options.record, {.names = "--record", .value = "ID", .help = "stamp the entry of this record"});
    args.example("gdnctl log stamp --commit \"$(git rev-parse HEAD)\"");
    args.exit_code(static_cast<int>(ExitCode::nothing_done), "nothing to stamp; the file is untouched");
    args.exit_code(static_cast<int>(ExitCode::conflict), "the generated entry was edited by hand");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the log cannot be written; nothing has changed");
    args.see_also("log append");
}

namespace {

Result<std::string> full_sha(const std::string& given, const std::filesystem::path& path, Context& context) {
    Json probe = Json::object();
    const auto facts = facts_for(path, context);
    GDNCTL_TRY(set_commit(probe, given, facts.get()));
    const auto commits = json::texts(probe, "commits");
    if (commits.empty()) return fail(ErrorKind::usage, fmt::format("--commit: not a commit: {}", given), "give a sha");
    return commits.front();
}

Result<ExitCode> nothing(std::string_view reason, Context& context) {
    if (context.global.json) {
        print_json({{"schema", "gdnctl.log-stamp/1"}, {"stamped", false}, {"reason", reason}}, context);
    } else {
        log::info("nothing stamped: {}", reason);
    }
    return ExitCode::nothing_done;
}

Result<ExitCode> done(const std::string& sha, const std::string& record_id, Context& context) {
    if (context.global.json) {
        print_json({{"schema", "gdnctl.log-stamp/1"},
                    {"stamped", true},
                    {"commit", sha},
                    {"record", record_id.empty() ? Json() : Json(record_id)}},
                   context);
    } else {
        log::info("stamped last hill-climb log entry with commit {}", sha.substr(0, 12));
    }
    return ExitCode::ok;
}

const Json* find_record(const std::vector<Json>& current, const std::vector<Json>& all, std::string id) {
    if (id.empty()) return nullptr;  // an entry without a record
    // A correction may have replaced an id.
    for (const Json& record : all) {
        if (runlog::replaced_id(record) == id) id = runlog::id_of(record);
    }
    const auto found =
        std::find_if(current.begin(), current.end(), [&](const Json& record) { return runlog::id_of(record) == id; });
    return found == current.end() ? nullptr : &*found;
}

Result<ExitCode> stamp_record(runlog::LogWriter& writer, const Json& old, const std::string& sha, Context& context) {
    const std::string status = json::text(old, "commit_status");
    if (status != "self" && status != "pending") {
        return nothing(
            fmt::format("iteration {} already says `{}`", runlog::iteration_of(old).text(), runlog::render_commit(old)),
            context);
    }
    Json record = runlog::superseding(old, context.clock.wall(), "stamped with its commit");
    record["commits"] = Json::array({sha});
    record["commit_status"] = "committed";
    std::vector<Json> all = writer.records();
    all.push_back(record);
    runlog::PlaceOptions place;
    place.only_missing = true;
    place.rewrite_id = runlog::id_of(record);
    GDNCTL_TRY_ASSIGN(const auto placement,
                      runlog::place_records(writer.text(), runlog::current_records(all), all, place));
    for (const auto& difference : placement.differences) {
        if (difference.id == runlog::id_of(old) && !difference.settled) {
            return fail(ErrorKind::conflict, difference.message,
                        "move your text outside the markers, then `gdnctl log render --force`");
        }
    }
    GDNCTL_TRY(writer.commit({&record, 1}, placement.text));
    return done(sha, runlog::id_of(record), context);
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path, log_path(options.log_file, context));
    std::error_code problem;
    if (!std::filesystem::exists(path, problem)) return nothing("log file not found: " + path.string(), context);
    GDNCTL_TRY_ASSIGN(const auto sha, full_sha(options.commit, path, context));
    GDNCTL_TRY_ASSIGN(auto writer, runlog::LogWriter::open(path, writer_wait(context)));
    const auto current = runlog::current_records(writer.records());
    if (options.record) {
        const Json* record = find_record(current, writer.records(), *options.record);
        if (record == nullptr) return nothing("no record " + *options.record, context);
        return stamp_record(writer, *record, sha, context);
    }
    GDNCTL_TRY_ASSIGN(const auto stamp, runlog::stamp_last_entry(writer.text(), sha));
    if (!stamp.stamped) return nothing(stamp.reason, context);
    if (const Json* record = find_record(current, writer.records(), stamp.record_id)) {
        return stamp_record(writer, *record, sha, context);
    }
    GDNCTL_TRY(writer.commit({}, stamp.text));
    return done(sha, "", context);
}

}  // namespace gdnctl::commands::log_stamp

namespace gdnctl::commands {

constinit const cli::Command k_log_stamp_row = cli::make<&log_stamp::describe, &log_stamp::run>(
    "log stamp", "Running log", "put the commit into the last entry", Tier::git);

}  // namespace gdnctl::commands
