// Ray clusters: which file describes the requested cluster, what it offers, where its dashboard is, which token it
// needs, and the route to it (a plain address, or an ssh tunnel to its head node).
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

// The parts of a Ray cluster YAML that matter for submitting jobs.
struct ClusterFile {
    std::filesystem::path path;
    std::string cluster_name;  // label of its machines; empty: not in the file
    std::string ssh_user = "ray";
    std::filesystem::path ssh_key;  // with `~` expanded
    std::string provider, region, zone, project;
    std::vector<ClusterNodeType> node_types;  // in file order
};

// The file for --cluster NAME: NAME itself if it ends in .yaml or is a file (relative to `cwd`); else, under `root`,
// infra/marin-NAME.yaml or, without a leading "marin-", infra/marin-NAME{,-a,-b,-vllm}.yaml. Errors: usage (`No cluster
// config found for region NAME`, with a list of names).
Result<std::filesystem::path> find_cluster_file(const std::filesystem::path& root, const std::filesystem::path& cwd,
                                                const std::string& name);

// Names for --cluster, from infra/marin-*.yaml of the repository; sorted.
std::vector<std::string> cluster_names(const std::filesystem::path& root);

// `home` replaces a leading `~`. Errors: usage (no such file), local_io, config (not YAML, or not a cluster file).
Result<ClusterFile> read_cluster_file(const std::filesystem::path& path, const std::filesystem::path& home);

// The TPU type that `--tpu auto` selects on this cluster. Error: usage `Unable to infer TPU worker type from cluster
// config.`
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

struct RayAddress {
    std::string url;     // scheme, host, port, path prefix; without a trailing '/'
    std::string origin;  // "option --ray-address", "environment RAY_ADDRESS"
};

// Normalises a dashboard's address. A missing scheme becomes http, trailing slashes are removed, a path prefix stays.
// Errors: usage (another scheme, user information, a query, no host).
Result<std::string> normalize_ray_address(std::string_view address);

// The first of RAY_API_SERVER_ADDRESS and RAY_ADDRESS that is a dashboard (http or https). Others, such as ray:// and
// host:port, are reported on stderr and ignored. Errors: those of normalize_ray_address.
Result<std::optional<RayAddress>> ray_address_of(const Env& env);

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

// ---- routes to a dashboard

// A direct address. `token` authorises requests; empty: none. Agents are reachable on this machine and on the
// dashboard's host; with a token, on the latter only if `allow_plaintext`.
std::shared_ptr<JobRoute> make_plain_route(std::string url, std::string token, bool allow_plaintext);

struct TunnelConfig {
    ClusterFile cluster;
    std::string token;                  // empty: none
    std::filesystem::path known_hosts;  // private to the user; its folder is created if missing
    Process* process = nullptr;
    Http* http = nullptr;
    Clock* clock = nullptr;
    std::stop_token stop;
};

// An ssh tunnel to the head node. Opened on first use, reopened when it has died, closed with the object. It asks
// gcloud for the machine, and counts as open once the dashboard answers /api/version through it.
std::shared_ptr<JobRoute> make_tunnel(TunnelConfig config);

}  // namespace gdnctl
