// Copies the working tree to the host of a held TPU: all current files that git does not ignore, compared by content.
// Removed there is only what an earlier sync sent, what has not changed there since, and what the tree no longer has.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "services/devtpu/host_tree.h"
#include "services/devtpu/road.h"
#include "services/job/job.h"

namespace gdnctl::devtpu {

struct SyncRequest {
    WorkingTree tree;
    TreeSource source;
    bool replaces_other = false;                                // also a tree that came from another repository
    std::function<bool(const std::string& commit)> has_commit;  // of the repository that `tree` is
    std::filesystem::path hashes;                               // the file of FileHashes
};

struct SyncReport {
    std::size_t files = 0;  // on the host, with the content that they have here
    std::string by;         // "rsync", "tar", "copy"; empty: nothing had to be sent
    std::string mark;       // tree_mark() of the host's tree
};

// Returns when the host has every file with its content, as the host's own hashes show. Says on stderr what was moved
// aside, what stays on the host, and that it waits for another command that uses the tree. A tree without files
// changes nothing there. Errors: usage (the host's tree came from another place), conflict (another command has used
// the tree for half an hour), infrastructure (ssh, the host's disk), authentication, local_io (an unreadable file, a
// link that leads out of the tree), interrupted.
Result<SyncReport> sync_tree(const Road& road, const SyncRequest& request, Process& process, Clock& clock,
                             std::stop_token stop);

// How long commands wait for their turn on a host.
inline constexpr std::chrono::minutes k_turn_limit{30};
inline constexpr std::chrono::milliseconds k_turn_pause{500};
Error no_turn(const Road& road);

}  // namespace gdnctl::devtpu
