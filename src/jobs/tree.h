// Which files of the working copy are sent with a job.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "platform/context.h"
#include "services/job/job.h"

namespace gdnctl {

// packaged: without files that are never packaged. tracked: everything except git's own files and virtual environments.
enum class TreeFilter { packaged, tracked };

// Files below `root` that git tracks or does not ignore, except those that the filter drops; without git, all files.
// Includes files of checked-out submodules and behind links to folders; reports on stderr what is left out. Errors:
// usage (no such folder, too many links), local_io, infrastructure (git fails).
Result<WorkingTree> list_working_tree(const std::filesystem::path& root, Context& context,
                                      TreeFilter filter = TreeFilter::packaged);

// HEAD of the repository at or above `root`; "unborn" if it has no commit; empty outside a repository.
std::string head_commit(const std::filesystem::path& root, Context& context);
// Whether that repository has this commit. False for anything that is not a commit's full hash.
bool has_commit(const std::filesystem::path& root, const std::string& commit, Context& context);
// The commit of HEAD, and "+" with a hash of all tracked files whose content differs from it, if any does; "" outside a
// repository. `apart`: files that do not count, relative to `root`. Errors: infrastructure, local_io (git fails, a file
// cannot be read).
Result<std::string> source_state(const std::filesystem::path& root, const std::set<std::string>& apart,
                                 Context& context);

// git_sha and dirty ("true"/"false") of the repository; empty outside one.
std::map<std::string, std::string> git_facts(const std::filesystem::path& root, Context& context);

}  // namespace gdnctl
