#include "commands/log/common.h"

#include <fmt/format.h>

#include "commands/common.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/job_destination.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"
#include "services/git/git.h"
#include "target/target.h"

namespace gdnctl::commands {

namespace fs = std::filesystem;

void describe_log_file(cli::Args& args, std::optional<std::string>& log_file) {
    args.option(log_file, "--log-file PATH", "running log",
                {.default_text = "the target's log", .complete = cli::Complete::file});
}

namespace {

// Records are stored next to the file itself, and the file is replaced when it is written: a link to it must stay a
// link.
fs::path behind_links(const fs::path& path) {
    std::error_code unresolved;
    if (!fs::is_symlink(path, unresolved)) return path;
    const fs::path file = fs::weakly_canonical(path, unresolved);
    return unresolved ? path : file;
}

}  // namespace

Result<fs::path> named_log(const std::optional<std::string>& log_file, const Context& context) {
    if (log_file) return (context.cwd / *log_file).lexically_normal();
    GDNCTL_TRY_ASSIGN(const auto target, target_in_use(context));
    if (target.log.empty()) {
        return fail(ErrorKind::config, fmt::format("target `{}` has no running log", target.name),
                    fmt::format("pass --log-file, or set `log` in [targets.{}]", target.name));
    }
    return (project_root(context) / target.log).lexically_normal();
}

Result<fs::path> log_path(const std::optional<std::string>& log_file, const Context& context) {
    return named_log(log_file, context).map(behind_links);
}

std::unique_ptr<CommitFacts> facts_for(const fs::path& log, Context& context) {
    const fs::path folder = log.parent_path();
    if (!find_repository_root(folder)) return nullptr;
    auto facts = open_commit_facts(folder, context.process);
    if (facts) return std::move(*facts);
    log::debug("working without git: {}", facts.error().text());
    return nullptr;
}

Result<runlog::Objective> target_objective(const Context& context) {
    GDNCTL_TRY_ASSIGN(const auto target, target_in_use(context));
    if (!target.metric) return runlog::Objective{};
    const auto key = runlog::metric_key(target.metric->name);
    return runlog::Objective{key.value_or(target.metric->name), target.metric->lower_is_better, target.metric->unit};
}

LockWait writer_wait(const Context& context) {
    return {.limit = std::chrono::seconds(30), .clock = &context.clock, .stop = context.stop};
}

Result<LogHistory> load_history(const fs::path& log) {
    GDNCTL_TRY_ASSIGN(auto files, runlog::read_log_files(log));
    if (!files.text) return tl::unexpected(runlog::missing_log(log));
    for (const auto& warning : files.records.warnings) log::warning("{}", warning);
    LogHistory loaded;
    loaded.text = std::move(*files.text);
    loaded.records = std::move(files.records.records);
    GDNCTL_TRY_ASSIGN(loaded.history, runlog::history_of(loaded.text, loaded.records));
    for (Json& record : loaded.history) runlog::make_public(record);
    if (const std::size_t lost = runlog::count_lost(loaded.text, loaded.records); lost > 0) {
        log::warning("{} generated {} no record in {}: reading from the log's text instead", lost,
                     lost == 1 ? "entry has" : "entries have", runlog::records_path(log).string());
        log::warning("hint: restore the records file; the text does not have every number");
    }
    return loaded;
}

Status set_commit(Json& record, std::string_view value, CommitFacts* facts) {
    const runlog::CommitValue commit = runlog::classify_commit(value);
    const auto set = [&](const char* status, std::string_view reason) {
        record["commits"] = Json::array();
        record["commit_status"] = status;
        if (!reason.empty()) record["commit_reason"] = std::string(reason);
    };
    switch (commit.kind) {
        case runlog::CommitKind::none: set("none", commit.reason); return {};
        case runlog::CommitKind::self: set("self", {}); return {};
        case runlog::CommitKind::pending: set("pending", {}); return {};
        case runlog::CommitKind::missing:
        case runlog::CommitKind::committed:
        case runlog::CommitKind::other: break;
    }
    std::string sha;
    if (facts != nullptr && commit.kind != runlog::CommitKind::missing) {
        GDNCTL_TRY_ASSIGN(const auto info, facts->resolve(commit.text));
        if (info) sha = info->sha;
    }
    if (sha.empty() && commit.kind == runlog::CommitKind::committed) {
        if (facts != nullptr) log::warning("no commit {} in this repository", commit.sha);
        sha = commit.sha;
    }
    if (sha.empty()) {
        if (value == "HEAD") {
            return fail(ErrorKind::usage, "HEAD is no commit yet", "commit first, or name a commit with --commit SHA");
        }
        return fail(ErrorKind::usage, fmt::format("--commit: neither a commit nor a status: {}", value),
                    "use a sha, `none (<reason>)`, `this commit` or `pending`");
    }
    set("committed", {});
    record["commits"].push_back(sha);
    return {};
}

}  // namespace gdnctl::commands
