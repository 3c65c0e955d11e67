// Checks that validation is possible before an agent spends money on work that could not be judged.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "loop/engine/options.h"
#include "loop/gates/job_service.h"
#include "loop/gates/validation_options.h"
#include "target/target.h"

namespace gdnctl::loop {

// Checks what files say about the named clusters, without a network and before anything changes. If several are named,
// one may be missing. Errors: usage (no cluster with that name; or none offers the accelerator that jobs would request,
// so that they would wait forever), config (an unreadable file).
Status check_cluster_files(const ValidationOptions& options, const Target& target, const std::filesystem::path& cwd);

struct ClusterPreflight {
    const ValidationOptions& options;
    const HoldOptions& hold;
    bool patient = false;        // an unreachable cluster may come back: only warn
    std::filesystem::path root;  // of the repository
    JobService& jobs;
    std::stop_token stop{};
};

// Asks the clusters that jobs would use, in that order, until one answers; at most a minute each. Errors:
// infrastructure (none answers; not with `patient`), authentication and usage (every cluster refuses the configuration
// for the same reason), interrupted.
Status check_clusters_answer(const ClusterPreflight& preflight);

}  // namespace gdnctl::loop
