// What of the working copy travels with a job.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "gdnctl/platform/context.h"
#include "gdnctl/services/job.h"

namespace gdnctl::commands {

// Tracked and untracked-but-not-ignored files below `root`, less what is never packaged; without git, all files.
// Errors: usage (no such folder), local_io, infrastructure (git fails).
Result<WorkingTree> list_working_tree(const std::filesystem::path& root, Context& context);

// git_sha and dirty ("true"/"false") of the repository; empty outside one.
std::map<std::string, std::string> git_facts(const std::filesystem::path& root, Context& context);

}  // namespace gdnctl::commands
