// Options that the dev-tpu commands share.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "commands/jobs/job_options.h"
#include "jobs/hold.h"
#include "jobs/hold_run.h"
#include "jobs/place.h"

namespace gdnctl::commands::devtpu_options {

struct Name {
    PlaceOptions place;
    std::string tpu_name;
};
void describe_name(cli::Args& args, Name& options);

struct Sync {
    std::optional<std::string> sync_path;  // nullopt: the repository
    bool no_sync = false;
};
void describe_sync(cli::Args& args, Sync& options);
// Error: usage (no such folder).
Result<std::filesystem::path> sync_root(const Sync& options, const Context& context);

struct Run {
    std::vector<std::string> env;  // KEY=VALUE, or KEY: the value that it has here
    bool forward_all_env = false;
    Via via = Via::automatic;
    std::optional<double> timeout_s, idle_timeout_s;
};
void describe_run(cli::Args& args, Run& options);
Result<std::vector<JobEnv>> extra_env(const Run& options, const Context& context);
std::chrono::milliseconds limit_of(const std::optional<double>& seconds);

// Finds the hold and, unless told otherwise, brings the tree up to date on its host. Through jobs the tree travels with
// each of them.
Result<FoundHold> ready_hold(const Name& name, const Sync& sync, Via& via, Context& context);

}  // namespace gdnctl::commands::devtpu_options
