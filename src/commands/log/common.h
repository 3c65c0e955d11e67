// What the log commands share: which log is meant, and what git says about it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "core/commit_facts.h"
#include "core/json.h"
#include "platform/context.h"
#include "platform/lock.h"
#include "runlog/render/summary.h"

namespace gdnctl::commands {

void describe_log_file(cli::Args& args, std::optional<std::string>& log_file);

// --log-file against the working directory, else the target's log under the repository root. Absolute. Error: config
// (the target names no log).
Result<std::filesystem::path> named_log(const std::optional<std::string>& log_file, const Context& context);
// The same file behind symbolic links: records lie beside it.
Result<std::filesystem::path> log_path(const std::optional<std::string>& log_file, const Context& context);

// Git's answers about the repository that holds the log; null without one (why is in the debug log).
std::unique_ptr<CommitFacts> facts_for(const std::filesystem::path& log, Context& context);

// The target's metric, as what iterations are ranked by; an empty key where it has none.
Result<runlog::Objective> target_objective(const Context& context);

// Writers wait this long for each other.
LockWait writer_wait(const Context& context);

struct LogHistory {
    std::string text;
    std::vector<Json> records;
    std::vector<Json> history;
};
// Every iteration of the log as a record. Errors: usage (no such log), bad_input, local_io.
Result<LogHistory> load_history(const std::filesystem::path& log);

// Writes a commit value (`--commit`: a sha, a revision, `none (reason)`, `this commit`, `pending`) into a record.
// Error: usage.
Status set_commit(Json& record, std::string_view value, CommitFacts* facts);

}  // namespace gdnctl::commands
