// Queries through the gcloud program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "services/cluster/cluster.h"

namespace gdnctl::cluster {

// Standard output of `gcloud ARGS...`, with a limit of 30 s. `what` names the purpose ("find the head node of X").
// Errors: authentication (not logged in, no permission), remote_missing (NOT_FOUND), infrastructure, interrupted,
// terminated.
Result<std::string> run_gcloud(const GcloudAccess& gcloud, std::vector<std::string> words, std::string_view what);

struct HeadNode {
    std::string internal_ip;
    std::string ssh_ip;  // external, or internal if it has no other
};
// Error: infrastructure `No head node found for cluster X`.
Result<HeadNode> find_head_node(const GcloudAccess& gcloud, const ClusterFile& cluster);
// Parses "internal<tab>external" as printed by gcloud. Pure.
Result<HeadNode> parse_head_node(std::string_view line, std::string_view cluster_name);

}  // namespace gdnctl::cluster
