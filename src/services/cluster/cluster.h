// Ray and Iris clusters: which file and which [clusters.NAME] table describe the requested cluster, what it offers,
// where its server is, which token it needs, and the route to it (a plain address, or a tunnel).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config.h"
#include "core/place_kind.h"
#include "core/result.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/http.h"
#include "platform/process.h"
#include "services/job/job.h"

namespace gdnctl {

// ---- cluster files

struct ClusterNodeType {
    std::string name;                         // "tpu_worker"
    std::string accelerator;                  // acceleratorType, "v5p-8"; empty: no accelerator
    std::map<std::string, double> resources;  // of one node, as in the file
};

struct ClusterAddress {
    std::string url;     // scheme, host, port, path prefix; without a trailing '/'
    std::string origin;  // "option --ray-address", "environment RAY_ADDRESS", "gdnctl.toml:4", ...
};

struct OAuthClient {
    std::string id, secret;  // both empty: not known
};

// What only an Iris cluster has.
struct IrisSettings {
    std::string dashboard_url;  // base of the pages for people; empty: the address
    bool needs_login = false;   // behind Google's Identity-Aware Proxy
    OAuthClient client;
    std::vector<std::string> audiences;  // for id tokens of service accounts
    std::string label_prefix;            // of its machines' labels
    std::int64_t port = 10000;           // of the controller on its machine
    std::string impersonate;             // service account that gcloud acts as; empty: none
    // How the file says that the controller is reached: "gcp", or "manual", "coreweave", "local"; empty: not at all.
    std::string controller;
};

// What a cluster's file and its table say, as far as it matters for submitting jobs.
struct ClusterFile {
    PlaceKind kind = PlaceKind::ray;        // or iris
    std::filesystem::path path;             // empty: only the table describes it
    std::string cluster_name;               // Ray: label of its machines; empty: not in the file
    std::optional<ClusterAddress> address;  // of its server; nullopt: through a tunnel
    std::string tpu;                        // what the table gives for `--tpu auto`; empty: nothing
    std::string ssh_user = "ray";
    std::filesystem::path ssh_key;  // with `~` expanded
    std::string provider, region, zone, project;
    std::vector<ClusterNodeType> node_types;  // in file order
    IrisSettings iris;
};

// Where clusters are looked for.
struct ClusterPlaces {
    std::filesystem::path root;  // the repository
    std::filesystem::path cwd;
    std::filesystem::path home;
    const Config* config = nullptr;  // its [clusters.NAME] tables; nullptr: none
};

// The file for --cluster NAME, the first of: NAME itself if it ends in .yaml or .yml, or is a file (relative to `cwd`);
// under the repository infra/marin-NAME.yaml or, without a leading "marin-", infra/marin-NAME{,-a,-b,-vllm}.yaml;
// ~/.config/marin/clusters/NAME.yaml or .yml; under the repository lib/iris/config/NAME.yaml or .yml. Errors: usage
// (`No cluster config found for region NAME`, with a list of names).
Result<std::filesystem::path> find_cluster_file(const ClusterPlaces& places, const std::string& name);

// The cluster for --cluster NAME: the table [clusters.NAME] over the file that it names, or over the file that
// find_cluster_file() finds. Errors: those of find_cluster_file() and read_cluster_file(); config (the table, with file
// and line).
Result<ClusterFile> find_cluster(const ClusterPlaces& places, const std::string& name);

// Names for --cluster other than `local`; sorted.
std::vector<std::string> cluster_names(const ClusterPlaces& places);

// Reads a file of either kind. `home` replaces a leading `~`. Errors: usage (no such file), local_io, config (not YAML,
// or not a cluster file).
Result<ClusterFile> read_cluster_file(const std::filesystem::path& path, const std::filesystem::path& home);
// The same for the text of the file `path`. Pure.
Result<ClusterFile> parse_cluster_file(std::string_view text, const std::filesystem::path& path,
                                       const std::filesystem::path& home);

// The TPU type that `--tpu auto` selects on this cluster: that of its table. Else on Ray that of the node type
// tpu_worker or the first one with a TPU, and on Iris v5p-8 if it is offered, or the smallest on one machine. Error:
// usage `Unable to infer TPU worker type from cluster config.`
Result<std::string> infer_tpu(const ClusterFile& file);
// Accelerator types of its node types, each once, in file order.
std::vector<std::string> tpu_types(const ClusterFile& file);
// Whether a node type has the head of such a slice. Otherwise a job that asks for it waits forever.
bool offers_tpu(const ClusterFile& file, std::string_view type);

// Variables in the `env:` table of a YAML file (.marin.yaml). null becomes "", other scalars are taken as written.
// Empty if the file or the table is missing. Errors: config (not YAML, a value that is not a scalar, an invalid name),
// local_io.
Result<std::vector<std::pair<std::string, std::string>>> read_env_table(const std::filesystem::path& path);

// ---- addresses

// Normalises the address of a Ray dashboard or an Iris controller. A missing scheme becomes http, trailing slashes are
// removed, a path prefix stays. Errors: usage (another scheme, user information, a query, no host).
Result<std::string> normalize_address(std::string_view address, PlaceKind kind = PlaceKind::ray);

// The first of RAY_API_SERVER_ADDRESS and RAY_ADDRESS that is a dashboard (http or https). Others, such as ray:// and
// host:port, are reported on stderr and ignored. Errors: those of normalize_address.
Result<std::optional<ClusterAddress>> ray_address_of(const Env& env);

// Whether traffic there is confidential: https, or this machine.
bool is_confidential(std::string_view url);

// ---- tokens

struct RayToken {
    std::string value;                // empty: none
    std::string origin;               // "environment RAY_AUTH_TOKEN", "~/.ray/auth_token", ...; empty: none
    std::vector<std::string> looked;  // the places searched, in order, each with the result
};

struct GcloudAccess {
    Process* process = nullptr;
    std::stop_token stop;
    std::chrono::milliseconds limit{30'000};
};

// Looks in RAY_AUTH_TOKEN, the file named by RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token and, if a cluster file names a
// project, that project's secret RAY_AUTH_TOKEN, which is then saved in ~/.ray/auth_token (0600). Registers the value
// for redaction. Errors: authentication (a named file is unreadable or empty, an empty secret, not logged in),
// infrastructure (gcloud fails), local_io, interrupted.
Result<RayToken> find_ray_token(const Env& env, const ClusterFile* cluster, const GcloudAccess& gcloud);

// What to do about a rejected token: where gdnctl looked for it, and how to get one.
std::string token_hint(const RayToken& token, bool withheld);

// ---- what a dashboard reports about itself

struct ClusterDemand {
    std::map<std::string, double> resources;
    std::int64_t count = 0;
};
struct ClusterLoad {
    std::optional<double> tpu_used, tpu_total;  // nullopt: no TPU
    std::vector<ClusterDemand> queued;          // requests waiting for resources
};
// Parses the answer of /api/cluster_status; nullopt: not in Ray's format. Pure.
std::optional<ClusterLoad> parse_cluster_status(std::string_view text);

struct DashboardFacts {
    std::string ray_version, session;
    std::string auth_mode;            // "token", "disabled"; empty: not reported
    std::optional<ClusterLoad> load;  // nullopt: not reported
};
// Errors: authentication (Ray's answer to the token), infrastructure (no answer, not Ray), interrupted, terminated.
Result<DashboardFacts> ask_dashboard(Http& http, const std::string& url, const std::string& token,
                                     std::stop_token stop);

// ---- routes to a server

// A direct address. `token` authorises requests; empty: none. Agents are reachable on this machine and on the
// dashboard's host; with a token, on the latter only if `allow_plaintext`.
std::shared_ptr<JobRoute> make_plain_route(std::string url, std::string token, bool allow_plaintext);

struct TunnelConfig {
    ClusterFile cluster;
    std::string token;                  // of a Ray cluster; empty: none
    std::filesystem::path known_hosts;  // of ssh to a head node; private to the user; its folder is created if missing
    Process* process = nullptr;
    Http* http = nullptr;
    Clock* clock = nullptr;
    std::stop_token stop;
};

// An ssh tunnel to the head node of a Ray cluster, or by `gcloud compute ssh` to the controller of an Iris cluster.
// Opened on first use, reopened when it has died, closed with the object. It asks gcloud for the machine, and counts as
// open once the server answers through it.
std::shared_ptr<JobRoute> make_tunnel(TunnelConfig config);

class Login;
// The address of an Iris controller. `login`: nullptr if it needs none. `token`: what MARIN_CLUSTER_TOKEN holds.
// Neither is sent over plain http to another machine.
std::shared_ptr<JobRoute> make_iris_route(std::string url, std::shared_ptr<Login> login, std::string token);

}  // namespace gdnctl
