// The package of a working tree: what travels to a cluster, and what a job on this machine gets a private copy of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>

#include "services/job/job.h"

namespace gdnctl {

// What a cluster's upload takes; the same limit everywhere, so that a job that runs here can run there.
inline constexpr std::uint64_t k_package_limit = 104'857'600;

// Packs the tree's files (links followed, files that are gone skipped, exec bits kept) into the ZIP archive `package`
// and returns its size in bytes. The same files give the same bytes, whatever their dates and owners. Errors: local_io
// (a link that leaves the root, disk full); usage (larger than `limit` bytes, said as soon as it is: names the largest
// files); interrupted, terminated (a request to `stop`).
Result<std::uint64_t> pack_tree(const WorkingTree& tree, const std::filesystem::path& package, std::stop_token stop,
                                std::uint64_t limit = k_package_limit);

// The usage error for a package of more than `limit` bytes; names the ten largest files of the tree.
Error package_too_large(const WorkingTree& tree, std::uint64_t limit);

// Makes the folder `into` with copies of the same files, for a job on this machine. Errors: those of pack_tree(), also
// where the package would be too large.
Status copy_tree(const WorkingTree& tree, const std::filesystem::path& into, std::stop_token stop,
                 std::uint64_t limit = k_package_limit);

}  // namespace gdnctl
