#include "jobs/job_destination.h"

#include <vector>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "core/config.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/http_policy.h"
#include "services/iris/iris_jobs.h"
#include "services/local/local_jobs.h"
#include "services/ray/ray_jobs.h"
#include "target/target.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view k_default_cluster = "us-central1";
constexpr std::string_view k_default_iris_cluster = "marin";
constexpr std::string_view k_local = "local";

bool truthy(const std::optional<std::string>& value) {
    return value && !value->empty() && *value != "0" && text::to_lower(*value) != "false";
}

JobDestination local_destination(std::string origin) {
    JobDestination place;
    place.kind = PlaceKind::local;
    place.cluster = k_local;
    place.origin = std::move(origin);
    return place;
}

JobDestination destination(ClusterFile file, std::string cluster, std::string origin) {
    JobDestination place;
    place.kind = file.kind;
    place.cluster = std::move(cluster);
    place.origin = std::move(origin);
    place.address = file.address;
    place.file = std::move(file);
    return place;
}

// An Iris cluster that its file does not tell how to reach cannot be used.
Status check_reachable(const JobDestination& place) {
    if (place.kind != PlaceKind::iris || place.address || place.file->iris.controller == "gcp") return {};
    const std::string& way = place.file->iris.controller;
    return fail(ErrorKind::usage,
                fmt::format("cluster {}: {}", place.cluster,
                            way.empty() ? "its file does not say how its controller is reached: open a tunnel yourself "
                                          "and pass --iris-url"
                                        : fmt::format("its controller is reached through {}, which gdnctl does not do: "
                                                      "open the tunnel yourself and pass --iris-url",
                                                      way)));
}

// For --cluster NAME, or a name from elsewhere.
Result<JobDestination> named_destination(const std::string& name, std::string origin, const Context& context) {
    if (name == k_local) return local_destination(std::move(origin));
    GDNCTL_TRY_ASSIGN(ClusterFile file, find_cluster(cluster_places(context), name));
    return destination(std::move(file), name, std::move(origin));
}

// The place with the address of --ray-address or --iris-url.
Result<JobDestination> with_address(std::optional<JobDestination> named, const std::string& address, PlaceKind kind) {
    const bool ray = kind == PlaceKind::ray;
    if (named && named->kind != kind) {
        return fail(
            ErrorKind::usage,
            fmt::format("{} is {} cluster: drop {}", named->cluster, ray ? "an Iris" : "a Ray",
                        ray ? "--ray-address" : "--iris-url"),
            ray ? "pass its controller's address with --iris-url" : "pass its dashboard's address with --ray-address");
    }
    JobDestination place = std::move(named).value_or(JobDestination());
    place.kind = kind;
    GDNCTL_TRY_ASSIGN(std::string url, normalize_address(address, kind));
    place.address = ClusterAddress{std::move(url), ray ? "option --ray-address" : "option --iris-url"};
    if (place.origin.empty()) place.origin = place.address->origin;
    return place;
}

// The place that the options alone select; nullopt: none.
Result<std::optional<JobDestination>> asked_destination(const DestinationOptions& options, const Context& context) {
    std::optional<JobDestination> place;
    if (options.cluster_config) {
        const fs::path home = cluster_places(context).home;
        GDNCTL_TRY_ASSIGN(ClusterFile file, read_cluster_file(context.cwd / *options.cluster_config, home));
        place = destination(std::move(file), *options.cluster_config, "option --cluster-config");
    } else if (options.cluster) {
        GDNCTL_TRY_ASSIGN(place, named_destination(*options.cluster, "option --cluster", context));
    }
    for (const auto& [address, kind] :
         {std::pair(&options.ray_address, PlaceKind::ray), std::pair(&options.iris_url, PlaceKind::iris)}) {
        if (!*address) continue;
        GDNCTL_TRY_ASSIGN(place, with_address(std::move(place), **address, kind));
    }
    return place;
}

// How a person names a cluster and logs in to it, and the stem of the file that this leaves.
struct LoginNames {
    std::string cluster, command;
};

LoginNames login_names(const JobDestination& place) {
    if (place.cluster.empty()) {
        const auto url = http::parse_url(place.address->url);
        std::string name = url->host_name();
        // `iris` names the port only if the address does.
        if (url->origin().ends_with(fmt::format(":{}", url->port))) name += fmt::format("-{}", url->port);
        return {std::move(name), fmt::format("iris --controller-url {} login", place.address->url)};
    }
    const bool is_file = place.file && !place.file->path.empty() &&
                         (place.cluster.find('/') != std::string::npos || place.cluster.ends_with(".yaml") ||
                          place.cluster.ends_with(".yml"));
    if (is_file) {
        return {place.file->cluster_name, fmt::format("iris --config {} login", text::shell_quote(place.cluster))};
    }
    return {place.cluster, fmt::format("iris --cluster {} login", place.cluster)};
}

// Whether requests need a Google login: a cluster says so, unless the address is one that the user gave. A controller
// with https is taken to be behind Google's proxy.
bool needs_login(const JobDestination& place) {
    const bool own_address =
        place.file && place.address && place.file->address && place.address->origin == place.file->address->origin;
    return own_address ? place.file->iris.needs_login : place.address->url.starts_with("https:");
}

Result<ClusterAccess> open_iris_access(const JobDestination& place, Context& context) {
    ClusterAccess access;
    auto [cluster, command] = login_names(place);
    access.login_hint = command;
    if (!place.address) {
        access.route =
            make_tunnel({*place.file, {}, {}, &context.process, &context.http, &context.clock, context.stop});
        return access;
    }
    const std::string& url = place.address->url;
    if (needs_login(place)) {
        if (!is_confidential(url)) {
            return fail(ErrorKind::config,
                        fmt::format("{}: {} uses plain HTTP; the login to cluster {} would be sent unencrypted",
                                    place.address->origin, url, cluster),
                        "use https, or open a tunnel and pass --iris-url http://127.0.0.1:PORT");
        }
        LoginConfig login;
        login.cluster = std::move(cluster);
        login.command = std::move(command);
        if (place.file) {
            login.client = place.file->iris.client;
            if (!place.file->iris.audiences.empty()) login.audience = place.file->iris.audiences.front();
            login.impersonate = place.file->iris.impersonate;
        }
        login.root = project_root(context);
        login.env = &context.env;
        login.process = &context.process;
        login.http = &context.http;
        login.clock = &context.clock;
        login.stop = context.stop;
        access.login = std::make_shared<Login>(std::move(login));
    }
    const std::string token = context.env.get("MARIN_CLUSTER_TOKEN").value_or("");
    register_secret(token);
    access.route = make_iris_route(url, access.login, token);
    return access;
}

Result<std::unique_ptr<JobBackend>> open_iris(const JobDestination& place, Context& context) {
    GDNCTL_TRY_ASSIGN(ClusterAccess access, open_access(place, context));
    IrisJobsConfig config;
    config.cluster = place.cluster;
    GDNCTL_TRY_ASSIGN(config.address, access.route->url());
    if (place.file) config.dashboard_url = place.file->iris.dashboard_url;
    config.route = std::move(access.route);
    config.login_hint = std::move(access.login_hint);
    config.user = iris_user(context.env);
    config.one_shot = place.one_shot;
    config.http = &context.http;
    config.clock = &context.clock;
    config.stop = context.stop;
    return make_iris_jobs(std::move(config));
}

Result<std::unique_ptr<JobBackend>> open_ray(const JobDestination& place, Context& context) {
    GDNCTL_TRY_ASSIGN(ClusterAccess access, open_access(place, context));
    RayJobsConfig config;
    config.cluster = place.cluster;
    config.one_shot = place.one_shot;
    config.token_hint = token_hint(access.token, access.withheld);
    // Opens the tunnel here, because people are shown its local end.
    GDNCTL_TRY_ASSIGN(config.address, access.route->url());
    config.route = std::move(access.route);
    config.http = &context.http;
    config.clock = &context.clock;
    config.stop = context.stop;
    return make_ray_jobs(std::move(config));
}

}  // namespace

std::string user_name(const Env& env) {
    for (const char* name : {"USER", "LOGNAME"}) {
        if (const auto value = env.get(name); value && !value->empty()) return *value;
    }
    constexpr std::size_t k_entry_size = std::size_t{16} << 10;
    std::vector<char> buffer(k_entry_size);
    passwd entry{};
    passwd* found = nullptr;
    const int problem = getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found);
    if (problem == 0 && found != nullptr && *found->pw_name != '\0') return found->pw_name;
    return "uid" + std::to_string(getuid());
}

std::filesystem::path project_root(const Context& context) {
    return find_repository_root(context.cwd).value_or(context.cwd);
}

std::string address_text(const JobDestination& place) {
    if (place.is_local()) return "this machine";
    if (place.address) return place.address->url;
    return fmt::format("ssh tunnel to the {} of {}", place.kind == PlaceKind::iris ? "controller" : "head node",
                       place.file->cluster_name);
}

ClusterPlaces cluster_places(const Context& context) {
    return {project_root(context), context.cwd, context.env.get("HOME").value_or(""), &context.config};
}

Result<JobDestination> choose_destination(const DestinationOptions& options, Context& context) {
    const auto finished = [&](JobDestination place) -> Result<JobDestination> {
        GDNCTL_TRY(check_reachable(place));
        place.allow_plaintext_token = options.allow_plaintext_token;
        return place;
    };
    GDNCTL_TRY_ASSIGN(auto asked, asked_destination(options, context));
    if (asked) return finished(std::move(*asked));
    GDNCTL_TRY_ASSIGN(const auto address, ray_address_of(context.env));
    if (address) {
        JobDestination place;
        place.origin = address->origin;
        place.address = address;
        return finished(std::move(place));
    }
    GDNCTL_TRY_ASSIGN(const auto configured, context.config.string("cluster"));
    // The built-in default is the fallback if nothing else is available, not a choice.
    if (configured && context.config.find("cluster")->origin.kind != ConfigOrigin::Kind::builtin) {
        GDNCTL_TRY_ASSIGN(JobDestination place,
                          named_destination(*configured, context.config.find("cluster")->origin.text(), context));
        return finished(std::move(place));
    }
    const fs::path root = project_root(context);
    for (const auto& [usual, file] : {std::pair(k_default_cluster, "infra/marin-us-central1.yaml"),
                                      std::pair(k_default_iris_cluster, "lib/iris/config/marin.yaml")}) {
        std::error_code ignored;
        if (!fs::exists(root / file, ignored)) continue;
        GDNCTL_TRY_ASSIGN(JobDestination place, named_destination(std::string(usual), "built-in default", context));
        place.by_default = true;
        return finished(std::move(place));
    }
    JobDestination place = local_destination("no other cluster is configured");
    place.by_default = true;
    return place;
}

Result<ClusterAccess> open_access(const JobDestination& place, Context& context) {
    if (place.kind == PlaceKind::iris) return open_iris_access(place, context);
    ClusterAccess access;
    const ClusterFile* file = place.file ? &*place.file : nullptr;
    GDNCTL_TRY_ASSIGN(access.token, find_ray_token(context.env, file, {&context.process, context.stop}));
    if (!place.address) {
        TunnelConfig tunnel{*place.file,      access.token.value, context.state_dir / "ssh" / "known_hosts",
                            &context.process, &context.http,      &context.clock,
                            context.stop};
        access.route = make_tunnel(std::move(tunnel));
        return access;
    }
    const std::string& url = place.address->url;
    access.withheld = !access.token.value.empty() && !is_confidential(url) && !place.allow_plaintext_token;
    if (access.withheld) {
        log::warning("the token is not sent in clear text to {}; --allow-plaintext-token allows it", url);
    }
    const bool has_token = !access.token.value.empty() && !access.withheld;
    access.route = make_plain_route(url, has_token ? access.token.value : "", place.allow_plaintext_token);
    return access;
}

std::string iris_user(const Env& env) {
    const std::string user = env.get("IRIS_USER").value_or("");
    return user.empty() ? user_name(env) : user;
}

Status check_answers(const JobDestination& place, Context& context) {
    if (place.is_local()) return {};
    GDNCTL_TRY_ASSIGN(const ClusterAccess access, open_access(place, context));
    if (place.kind == PlaceKind::iris) {
        GDNCTL_TRY(
            ask_controller(context.http, *access.route, iris_user(context.env), access.login_hint, context.stop));
        return {};
    }
    GDNCTL_TRY_ASSIGN(const std::string url, access.route->url());
    const std::string token = access.withheld ? std::string() : access.token.value;
    GDNCTL_TRY(ask_dashboard(context.http, url, token, context.stop));
    return {};
}

Result<std::unique_ptr<JobBackend>> open_backend(const JobDestination& place, const DestinationOptions& options,
                                                 Context& context) {
    if (place.kind == PlaceKind::ray) return open_ray(place, context);
    if (place.kind == PlaceKind::iris) return open_iris(place, context);
    if (options.no_local || truthy(context.env.get("GDNCTL_NO_LOCAL"))) {
        return fail(ErrorKind::infrastructure, "no cluster at hand, and the local backend is not allowed",
                    options.no_local ? "drop --no-local to run on this machine"
                                     : "unset GDNCTL_NO_LOCAL to run on this machine");
    }
    if (place.by_default) log::info("no cluster at hand: using the local backend (this host, no TPU)");
    return make_local_jobs({context.state_dir, context.env.all(), &context.clock, "/proc/self/exe", context.stop});
}

Result<std::unique_ptr<JobBackend>> open_backend(const DestinationOptions& options, bool one_shot, Context& context) {
    GDNCTL_TRY_ASSIGN(JobDestination place, choose_destination(options, context));
    place.one_shot = one_shot;
    return open_backend(place, options, context);
}

JobPlace place_of(const JobBackend& backend, std::string_view id) {
    return {backend.name(), backend.cluster(), backend.address(), backend.job_url(id)};
}

namespace {

bool is_iris(std::string_view backend) { return backend == to_text(PlaceKind::iris); }

}  // namespace

std::string cluster_words(const JobPlace& place) {
    if (place.cluster.empty()) {
        return (is_iris(place.backend) ? " --iris-url " : " --ray-address ") + text::shell_quote(place.address);
    }
    const bool is_file = place.cluster.ends_with(".yaml") || place.cluster.ends_with(".yml");
    return (is_file ? " --cluster-config " : " --cluster ") + text::shell_quote(place.cluster);
}

std::string cluster_words(const JobBackend& backend) {
    return cluster_words(JobPlace{backend.name(), backend.cluster(), backend.address(), {}});
}

std::string job_command(const JobPlace& place, std::string_view verb) {
    return fmt::format("gdnctl {}{}", is_iris(place.backend) ? "job " : "ray-", verb);
}

std::string job_command(const JobBackend& backend, std::string_view verb) {
    return job_command(JobPlace{backend.name(), {}, {}, {}}, verb);
}

}  // namespace gdnctl
