// The package of a working tree: uploaded to a cluster, or unpacked as a private copy for a local job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>

#include "services/job/job.h"

namespace gdnctl {

// The upload limit of a cluster. It applies everywhere, so that a job that runs locally can also run on a cluster.
inline constexpr std::uint64_t k_package_limit = 104'857'600;

// Packs the tree's files (links followed, vanished files skipped, exec bits kept) into the ZIP archive `package` and
// returns its size in bytes. The same files give the same bytes, whatever their dates and owners. Errors: local_io (a
// link that leaves the root, disk full); usage (larger than `limit` bytes, reported as soon as it is exceeded; names
// the largest files); interrupted, terminated (`stop` was requested).
Result<std::uint64_t> pack_tree(const WorkingTree& tree, const std::filesystem::path& package, std::stop_token stop,
                                std::uint64_t limit = k_package_limit);

// The usage error for a package of more than `limit` bytes; names the ten largest files of the tree.
Error package_too_large(const WorkingTree& tree, std::uint64_t limit);

// Makes the folder `into` with copies of the same files, for a job on this machine. Errors: those of pack_tree(), also
// where the package would be too large.
Status copy_tree(const WorkingTree& tree, const std::filesystem::path& into, std::stop_token stop,
                 std::uint64_t limit = k_package_limit);

}  // namespace gdnctl
