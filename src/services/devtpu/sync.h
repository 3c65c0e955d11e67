// Copies the working tree to the host of a held TPU: all current files that git does not ignore. Files from an earlier
// sync that the tree no longer has are removed; nothing else on the host is touched.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/result.h"
#include "platform/process.h"
#include "services/devtpu/road.h"
#include "services/job/job.h"

namespace gdnctl::devtpu {

// The names, each followed by a NUL, sorted bytewise, as rsync, tar and the manifest need them. Pure.
std::string zero_list(const std::vector<std::string>& files);

// A line that reads the new manifest from standard input and removes the files that only the old one lists.
std::string manifest_line(const Road& road);

struct SyncReport {
    std::size_t files = 0;
    std::string by;  // "rsync", "tar", "copy"
};

// Errors: infrastructure (ssh, the host's disk), authentication, local_io (an unreadable file, a link that leads out of
// the tree), interrupted.
Result<SyncReport> sync_tree(const Road& road, const WorkingTree& tree, Process& process, std::stop_token stop);

// Copies to a folder on this machine; skips files with the same size and time. Errors: local_io, interrupted.
Status copy_tree(const WorkingTree& tree, const std::filesystem::path& into, std::stop_token stop);

}  // namespace gdnctl::devtpu
