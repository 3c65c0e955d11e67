// Where a job command looks for jobs: the options that all of them share, and the backend they name.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "platform/context.h"
#include "platform/env.h"
#include "services/cluster/cluster.h"
#include "services/job/job.h"

namespace gdnctl {

struct PlaceOptions {
    std::optional<std::string> cluster;
    std::optional<std::string> cluster_config;
    std::optional<std::string> ray_address;
    bool allow_plaintext_token = false;
    bool no_local = false;
};

// USER, LOGNAME, the name in the user database, or the number: who jobs are submitted by.
std::string user_name(const Env& env);

// The repository at or above the working directory, else the working directory.
std::filesystem::path project_root(const Context& context);

// Which cluster is meant, before anybody is asked anything.
struct Place {
    bool local = false;
    bool by_default = false;            // nothing named it
    std::string cluster;                // "local", "us-central1"; empty where only an address was given
    std::string origin;                 // what named it: "option --cluster", "environment RAY_ADDRESS", ...
    std::optional<RayAddress> address;  // nullopt: through an ssh tunnel to the head node
    std::optional<ClusterFile> file;    // nullopt: only an address is known
    bool allow_plaintext_token = false;
    bool one_shot = false;  // see RayJobsConfig
};

// The first of: --ray-address, --cluster-config, --cluster, RAY_API_SERVER_ADDRESS or RAY_ADDRESS, the configured
// `cluster`, the default cluster where its file exists, this machine. Errors: usage (unknown cluster, bad address),
// config, local_io.
Result<Place> choose_place(const PlaceOptions& options, Context& context);

// The token that goes with a place, and the way there.
struct RayAccess {
    RayToken token;
    bool withheld = false;  // there is a token, but not for an address in clear text
    std::shared_ptr<RayRoute> route;
};
// Says on stderr when a token is withheld. Errors: authentication, infrastructure, interrupted.
Result<RayAccess> open_access(const Place& place, Context& context);

// The backend of a place; says so on stderr when that is the local one by default. Errors: infrastructure (the local
// backend is not allowed; a cluster cannot be reached; never a fall-back), authentication.
Result<std::unique_ptr<JobBackend>> open_backend(const Place& place, const PlaceOptions& options, Context& context);
// The same for the place that options, environment and configuration name. `one_shot`: the command neither waits for
// a job nor follows one.
Result<std::unique_ptr<JobBackend>> open_backend(const PlaceOptions& options, bool one_shot, Context& context);

JobPlace place_of(const JobBackend& backend, std::string_view id);

// " --cluster local" for the commands that are suggested to the user.
std::string cluster_words(const JobBackend& backend);

}  // namespace gdnctl
