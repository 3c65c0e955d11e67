// Bringing the working tree to the host of a held TPU: what git tracks and does not ignore, as it is now. What an
// earlier sync brought and the tree no longer has is removed; nothing else there is ever touched.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/result.h"
#include "platform/process.h"
#include "services/devtpu/road.h"
#include "services/job/job.h"

namespace gdnctl::devtpu {

// The names, each with a NUL at its end, sorted as bytes: what rsync, tar and the manifest want. Pure.
std::string zero_list(const std::vector<std::string>& files);

// The line that takes the new manifest on standard input and removes what only the old one has.
std::string manifest_line(const Road& road);

struct SyncReport {
    std::size_t files = 0;
    std::string by;  // "rsync", "tar", "copy"
};

// Errors: infrastructure (ssh, the host's disk), authentication, local_io (a file cannot be read, a link leads out of
// the tree), interrupted.
Result<SyncReport> sync_tree(const Road& road, const WorkingTree& tree, Process& process, std::stop_token stop);

// Copies to a folder of this machine; files of the same size and time are left alone. Errors: local_io, interrupted.
Status copy_tree(const WorkingTree& tree, const std::filesystem::path& into, std::stop_token stop);

}  // namespace gdnctl::devtpu
