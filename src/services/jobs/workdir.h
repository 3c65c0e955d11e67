// The job's private copy of the working tree.
#pragma once

#include <filesystem>

#include "gdnctl/services/job.h"

namespace gdnctl::local {

// Makes `into` and puts the tree's files there: links are followed, exec bits kept, files that are gone skipped.
// Errors: local_io (a link that leaves the root, disk full), usage (a path that leaves the root).
Status unpack_tree(const WorkingTree& tree, const std::filesystem::path& into);

}  // namespace gdnctl::local
