// Shared by the views of a loop and the `evolve` commands: which log directory and which run to use.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "core/json.h"
#include "loop/evolve/views.h"
#include "loop/gates/job_service.h"
#include "loop/memory/run_view.h"
#include "platform/context.h"

namespace gdnctl::commands {

void describe_loop_dir(cli::Args& args, std::optional<std::string>& log_dir);

// --log-dir relative to the working directory, or to the root of the repository if it exists only there; else the
// default directory of codex-loop, or the newest evolve run if that was written later. Errors: usage (the given one
// does not exist), remote_missing (exit 6: there is none in the default place).
Result<std::filesystem::path> loop_dir(const std::optional<std::string>& given, const Context& context);

// Reads the configuration for a job in some tree, with the options of this call. `context` must outlive the result.
loop::ConfigAt config_at(const Context& context);

}  // namespace gdnctl::commands

namespace gdnctl::commands::evolve {

// Shared by the `evolve` commands: which run to use.

struct RunChoice {
    std::optional<std::string> run, log_dir;
};
void describe_run(cli::Args& args, RunChoice& choice);
void describe_id(cli::Args& args, std::string& id, std::string_view name);
Result<std::filesystem::path> folder_of(const RunChoice& choice, const Context& context);
Result<loop::evolve::RunView> load(const RunChoice& choice, const Context& context);

// Removes the refs of a run's old candidates that were neither kept nor tied; `look_only`: only names them. Errors:
// conflict (a loop is running in the repository, or the journal is damaged).
Result<std::vector<std::string>> remove_old_refs(const std::filesystem::path& run, std::chrono::seconds age,
                                                 bool look_only, Context& context);

}  // namespace gdnctl::commands::evolve
