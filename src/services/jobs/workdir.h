// The job's private copy of the working tree: packed as it would be for a cluster, and unpacked here.
#pragma once

#include <cstdint>
#include <filesystem>

#include "gdnctl/services/job.h"

namespace gdnctl::local {

// What a cluster's upload takes; the same limit here, so that a job that runs here can run there.
inline constexpr std::uint64_t k_package_limit = 104'857'600;

// Packs the tree's files (links followed, files that are gone skipped, exec bits kept) into the ZIP archive `package`.
// Errors: local_io (a link that leaves the root, disk full); usage (larger than `limit` bytes: names the largest
// files).
Status pack_tree(const WorkingTree& tree, const std::filesystem::path& package, std::uint64_t limit);

// Makes the folder `into` with the package's files, and removes the package.
Status unpack_package(const std::filesystem::path& package, const std::filesystem::path& into);

}  // namespace gdnctl::local
