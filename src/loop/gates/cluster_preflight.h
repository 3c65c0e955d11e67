// Checks that validation is possible before an agent is paid for work that could not be judged.
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

// What files say of the clusters that are named: without a network, and before anything is touched. One of several may
// be missing. Errors: usage (no cluster of that name; none of them offers the accelerator that jobs would ask for: they
// would wait forever), config (no file that can be read).
Status check_cluster_files(const ValidationOptions& options, const Target& target, const std::filesystem::path& cwd);

struct ClusterPreflight {
    const ValidationOptions& options;
    const HoldOptions& hold;
    bool patient = false;        // a cluster that is away comes back: a warning
    std::filesystem::path root;  // of the repository
    JobService& jobs;
    std::stop_token stop{};
};

// Asks the clusters that jobs would go to, in that order, until one answers, a minute at most each. Errors:
// infrastructure (none answers; not where `patient`), authentication and usage (what is configured is refused, and by
// none of them in another way), interrupted.
Status check_clusters_answer(const ClusterPreflight& preflight);

}  // namespace gdnctl::loop
