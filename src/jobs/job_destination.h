// Where a job command looks for jobs: the options shared by all of them, and the backend that they select.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/place_kind.h"
#include "platform/context.h"
#include "platform/env.h"
#include "services/cluster/cluster.h"
#include "services/job/job.h"

namespace gdnctl {

struct DestinationOptions {
    std::optional<std::string> cluster;
    std::optional<std::string> cluster_config;
    std::optional<std::string> ray_address;
    std::optional<std::string> iris_url;
    bool allow_plaintext_token = false;
    bool no_local = false;
};

// The submitter of jobs: USER, LOGNAME, the name in the user database, or the numeric id.
std::string user_name(const Env& env);

// The repository that contains the working directory, else the working directory.
std::filesystem::path project_root(const Context& context);

// The selected cluster, before anything is contacted.
struct JobDestination {
    PlaceKind kind = PlaceKind::ray;
    bool by_default = false;            // nothing selected it
    std::string cluster;                // "local", "us-central1"; empty if only an address was given
    std::string origin;                 // what selected it: "option --cluster", "environment RAY_ADDRESS", ...
    std::optional<RayAddress> address;  // nullopt: through an ssh tunnel to the head node
    std::optional<ClusterFile> file;    // nullopt: only an address is known
    bool allow_plaintext_token = false;
    bool one_shot = false;  // see RayJobsConfig
    bool is_local() const { return kind == PlaceKind::local; }
};

// The first of: --ray-address, --cluster-config, --cluster, RAY_API_SERVER_ADDRESS or RAY_ADDRESS, the configured
// `cluster`, the default cluster if its file exists, this machine. Errors: usage (unknown cluster, bad address),
// config, local_io.
Result<JobDestination> choose_destination(const DestinationOptions& options, Context& context);

// The token for a place, and the way to it.
struct RayAccess {
    RayToken token;
    bool withheld = false;  // there is a token, but it is not sent to an address without TLS
    std::shared_ptr<JobRoute> route;
};
// Warns when a token is withheld. Errors: authentication, infrastructure, interrupted.
Result<RayAccess> open_access(const JobDestination& place, Context& context);

// The backend of a place; reports on stderr if that is the local one by default. Errors: infrastructure (the local
// backend is not allowed; a cluster cannot be reached, which never falls back to local), authentication.
Result<std::unique_ptr<JobBackend>> open_backend(const JobDestination& place, const DestinationOptions& options,
                                                 Context& context);
// The same for the place selected by options, environment and configuration. `one_shot`: the command neither waits for
// a job nor follows one.
Result<std::unique_ptr<JobBackend>> open_backend(const DestinationOptions& options, bool one_shot, Context& context);

JobPlace place_of(const JobBackend& backend, std::string_view id);

// " --cluster local", for commands suggested to the user.
std::string cluster_words(const JobPlace& place);
std::string cluster_words(const JobBackend& backend);

}  // namespace gdnctl
