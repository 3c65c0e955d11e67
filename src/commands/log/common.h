// Shared by the log commands: which log to use, and git's facts about it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "core/commit_facts.h"
#include "core/json.h"
#include "platform/context.h"
#include "platform/lock.h"
#include "runlog/history/summary.h"

namespace gdnctl::commands {

void describe_log_file(cli::Args& args, std::optional<std::string>& log_file);

// --log-file relative to the working directory, else the target's log relative to the repository root. Absolute. Error:
// config (the target has no log).
Result<std::filesystem::path> named_log(const std::optional<std::string>& log_file, const Context& context);
// The same with symbolic links resolved, since records are stored next to the file.
Result<std::filesystem::path> log_path(const std::optional<std::string>& log_file, const Context& context);

// Git facts about the repository that contains the log; null if there is none (the debug log says why).
std::unique_ptr<CommitFacts> facts_for(const std::filesystem::path& log, Context& context);

// The target's metric, by which iterations are ranked; an empty key if it has none.
Result<runlog::Objective> target_objective(const Context& context);

// How long writers wait for each other.
LockWait writer_wait(const Context& context);

struct LogHistory {
    std::string text;
    std::vector<Json> records;
    std::vector<Json> history;
};
// Every iteration of the log as a record. Errors: usage (no such log), bad_input, local_io.
Result<LogHistory> load_history(const std::filesystem::path& log);

// Stores a commit value (`--commit`: a sha, a revision, `none (reason)`, `this commit`, `pending`) in a record. Error:
// usage.
Status set_commit(Json& record, std::string_view value, CommitFacts* facts);

}  // namespace gdnctl::commands

namespace gdnctl::commands::log_append {

// gdnctl log append

// The values of --outcome.
std::span<const std::string_view> outcome_words();

}  // namespace gdnctl::commands::log_append
