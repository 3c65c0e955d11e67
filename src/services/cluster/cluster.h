// Ray clusters: which file describes the one that is meant, what it offers, where its dashboard is, which token opens
// it, and the way there (a plain address, or an ssh tunnel to its head node).
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
#include "services/job/route.h"

namespace gdnctl {

// ---- cluster files

struct ClusterNodeType {
    std::string name;                         // "tpu_worker"
    std::string accelerator;                  // acceleratorType, "v5p-8"; empty: no accelerator
    std::map<std::string, double> resources;  // of one node, as the file says
    std::optional<std::int64_t> max_workers;
    bool preemptible = false;
};

// The parts of a Ray cluster YAML that matter to someone who submits jobs.
struct ClusterFile {
    std::filesystem::path path;
    std::string cluster_name;  // label of its machines; empty: the file has none
    std::string ssh_user = "ray";
    std::filesystem::path ssh_key;  // `~` is resolved
    std::string provider, region, zone, project;
    std::string image, container;             // docker
    std::vector<ClusterNodeType> node_types;  // in the order of the file
};

// The file that --cluster NAME means: NAME itself when it ends in .yaml or is a file (relative to `cwd`), else under
// `root` infra/marin-NAME.yaml, and without a leading "marin-" infra/marin-NAME{,-a,-b,-vllm}.yaml. Errors: usage
// (`No cluster config found for region NAME`, with the names that there are).
Result<std::filesystem::path> find_cluster_file(const std::filesystem::path& root, const std::filesystem::path& cwd,
                                                const std::string& name);

// Names that --cluster takes, out of infra/marin-*.yaml of the repository; sorted.
std::vector<std::string> cluster_names(const std::filesystem::path& root);

// `home`: what a leading `~` stands for. Errors: usage (no such file), local_io, config (no YAML, or not of a cluster).
Result<ClusterFile> read_cluster_file(const std::filesystem::path& path, const std::filesystem::path& home);

// What `--tpu auto` means on this cluster. Error: usage `Unable to infer TPU worker type from cluster config.`
Result<std::string> infer_tpu(const ClusterFile& file);
// Accelerator types of its node types, each once, in the order of the file.
std::vector<std::string> tpu_types(const ClusterFile& file);
// Whether a node type has the head of such a slice; without one a job that asks for it waits for ever.
bool offers_tpu(const ClusterFile& file, std::string_view type);

// Variables in the `env:` table of a YAML file (.marin.yaml); null is "", other scalars are as they are written. No
// file, or none in it: empty. Errors: config (no YAML, a value that is no scalar, a name that is none), local_io.
Result<std::vector<std::pair<std::string, std::string>>> read_env_table(const std::filesystem::path& path);

// ---- addresses

struct RayAddress {
    std::string url;     // scheme, host, port, path prefix; no '/' at the end
    std::string origin;  // "option --ray-address", "environment RAY_ADDRESS"
};

// A dashboard's address as a person gives it: a missing scheme is http, slashes at the end go, a path prefix stays.
// Errors: usage (another scheme, user information, a query, no host).
Result<std::string> normalize_ray_address(std::string_view address);

// The first of RAY_API_SERVER_ADDRESS and RAY_ADDRESS that is a dashboard (http or https); the others, such as ray://
// and host:port, are named on stderr and left alone. Errors: those of normalize_ray_address.
Result<std::optional<RayAddress>> ray_address_of(const Env& env);

// Whether what is sent there cannot be read on the way: https, or this machine itself.
bool is_confidential(std::string_view url);

// ---- tokens

struct RayToken {
    std::string value;                // empty: none
    std::string origin;               // "environment RAY_AUTH_TOKEN", "~/.ray/auth_token", ...; empty: none
    std::vector<std::string> looked;  // the places that were looked at, in order, each with what was found there
};

struct GcloudAccess {
    Process* process = nullptr;
    std::stop_token stop;
    std::chrono::milliseconds limit{30'000};
};

// RAY_AUTH_TOKEN, then the file that RAY_AUTH_TOKEN_PATH names, then ~/.ray/auth_token, then (with a cluster file that
// names a project) the secret RAY_AUTH_TOKEN of that project, which is kept in ~/.ray/auth_token (0600). The value is
// registered for redaction. Errors: authentication (a named file that is unreadable or empty, an empty secret, not
// logged in), infrastructure (gcloud fails), local_io, interrupted.
Result<RayToken> find_ray_token(const Env& env, const ClusterFile* cluster, const GcloudAccess& gcloud);

// What to do about a refused token: where it was looked for, and how one is got.
std::string token_hint(const RayToken& token, bool withheld);

// ---- what a dashboard says about itself

struct ClusterDemand {
    std::map<std::string, double> resources;
    std::int64_t count = 0;
};
struct ClusterLoad {
    std::optional<double> tpu_used, tpu_total;  // nullopt: no TPU
    std::vector<ClusterDemand> queued;          // what waits for resources
};
// The answer of /api/cluster_status; nullopt: not in the form that Ray gives it. Pure.
std::optional<ClusterLoad> parse_cluster_status(std::string_view text);

struct DashboardFacts {
    std::string ray_version, session;
    std::string auth_mode;            // "token", "disabled"; empty: it does not say
    std::optional<ClusterLoad> load;  // nullopt: it does not say
};
// Errors: authentication (what Ray says to the token), infrastructure (no answer, no Ray), interrupted, terminated.
Result<DashboardFacts> ask_dashboard(Http& http, const std::string& url, const std::string& token,
                                     std::stop_token stop);

// ---- ways to a dashboard

// An address that needs no help. Agents are reached where they are this machine or the dashboard's own host, and
// never in clear text with a token.
std::shared_ptr<RayRoute> make_plain_route(std::string url, bool has_token, bool allow_plaintext);

struct TunnelConfig {
    ClusterFile cluster;
    std::filesystem::path known_hosts;  // private to us; its folder is created when missing
    Process* process = nullptr;
    Http* http = nullptr;
    Clock* clock = nullptr;
    std::stop_token stop;
};

// An ssh tunnel to the head node: opened on first use, opened again when it has died, ended with the object. The
// machine is asked of gcloud, the dashboard behind the tunnel for /api/version, before it counts as open.
std::shared_ptr<RayRoute> make_tunnel(TunnelConfig config);

}  // namespace gdnctl
