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
#include "services/cluster/login.h"
#include "services/job/job.h"

namespace gdnctl {

struct DestinationOptions {
    std::optional<std::string> cluster;
    std::optional<std::string> cluster_config;
    std::optional<std::string> ray_address;
    std::optional<std::string> iris_url;
    bool allow_plaintext_token = false;
    bool no_local = false;

    // Whether an option selects a place.
    bool given() const { return cluster || cluster_config || ray_address || iris_url; }
};

// The submitter of jobs: USER, LOGNAME, the name in the user database, or the numeric id.
std::string user_name(const Env& env);

// The repository that contains the working directory, else the working directory.
std::filesystem::path project_root(const Context& context);

// Where clusters are looked for.
ClusterPlaces cluster_places(const Context& context);

// The selected cluster, before anything is contacted.
struct JobDestination {
    PlaceKind kind = PlaceKind::ray;
    bool by_default = false;                // nothing selected it
    std::string cluster;                    // "local", "us-central1"; empty if only an address was given
    std::string origin;                     // what selected it: "option --cluster", "environment RAY_ADDRESS", ...
    std::optional<ClusterAddress> address;  // nullopt: through a tunnel
    std::optional<ClusterFile> file;        // nullopt: only an address is known
    bool allow_plaintext_token = false;
    bool one_shot = false;  // see RayJobsConfig
    bool is_local() const { return kind == PlaceKind::local; }
};

// Its address for people: a URL, or the tunnel to it.
std::string address_text(const JobDestination& place);

// The first of: --iris-url or --ray-address, --cluster-config, --cluster, RAY_API_SERVER_ADDRESS or RAY_ADDRESS, the
// configured `cluster`, the default Ray cluster and then the default Iris cluster if its file exists, this machine.
// Errors: usage (unknown cluster, bad address, no way to the controller), config, local_io.
Result<JobDestination> choose_destination(const DestinationOptions& options, Context& context);

// The token or the login for a cluster, and the way to it.
struct ClusterAccess {
    RayToken token;                // of a Ray cluster
    bool withheld = false;         // there is a token, but it is not sent to an address without TLS
    std::shared_ptr<Login> login;  // to an Iris cluster; nullptr: it needs none
    std::string login_hint;        // the command that logs in to an Iris cluster
    std::shared_ptr<JobRoute> route;
};
// Warns when a token is withheld. Errors: authentication, infrastructure, interrupted; config (a login that would be
// sent over plain http).
Result<ClusterAccess> open_access(const JobDestination& place, Context& context);

// The first part of our jobs' names on an Iris cluster: IRIS_USER, else user_name().
std::string iris_user(const Env& env);

// Whether the place answers and accepts the token or the login. Errors: those of open_access(), ask_dashboard() and
// ask_controller().
Status check_answers(const JobDestination& place, Context& context);

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

// The command for `verb` (test, profile, wait, logs, stop, list) by the name that fits the place: "gdnctl job logs" on
// an Iris cluster, "gdnctl ray-logs" elsewhere.
std::string job_command(const JobPlace& place, std::string_view verb);
std::string job_command(const JobBackend& backend, std::string_view verb);

}  // namespace gdnctl
