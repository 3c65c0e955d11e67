#include "jobs/job_destination.h"

#include <vector>

#include <pwd.h>
#include <unistd.h>

#include "core/config.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/local/local_jobs.h"
#include "services/ray/ray_jobs.h"
#include "target/target.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view k_default_cluster = "us-central1";
constexpr std::string_view k_local = "local";

bool truthy(const std::optional<std::string>& value) {
    return value && !value->empty() && *value != "0" && text::to_lower(*value) != "false";
}

fs::path home_of(const Context& context) { return context.env.get("HOME").value_or(""); }

JobDestination local_destination(std::string origin) {
    JobDestination place;
    place.kind = PlaceKind::local;
    place.cluster = k_local;
    place.origin = std::move(origin);
    return place;
}

// For --cluster NAME, or a name from elsewhere.
Result<JobDestination> named_destination(const std::string& name, std::string origin, const Context& context) {
    if (name == k_local) return local_destination(std::move(origin));
    JobDestination place;
    GDNCTL_TRY_ASSIGN(const fs::path path, find_cluster_file(project_root(context), context.cwd, name));
    GDNCTL_TRY_ASSIGN(place.file, read_cluster_file(path, home_of(context)));
    place.cluster = name;
    place.origin = std::move(origin);
    return place;
}

// The place that the options alone select; nullopt: none.
Result<std::optional<JobDestination>> asked_destination(const DestinationOptions& options, const Context& context) {
    std::optional<JobDestination> place;
    if (options.cluster_config) {
        place.emplace();
        GDNCTL_TRY_ASSIGN(place->file, read_cluster_file(context.cwd / *options.cluster_config, home_of(context)));
        place->cluster = *options.cluster_config;
        place->origin = "option --cluster-config";
    } else if (options.cluster) {
        GDNCTL_TRY_ASSIGN(place, named_destination(*options.cluster, "option --cluster", context));
    }
    if (options.ray_address) {
        if (!place) place.emplace();
        GDNCTL_TRY_ASSIGN(std::string url, normalize_ray_address(*options.ray_address));
        place->address = RayAddress{std::move(url), "option --ray-address"};
        if (place->origin.empty()) place->origin = place->address->origin;
    }
    return place;
}

Result<std::unique_ptr<JobBackend>> open_ray(const JobDestination& place, Context& context) {
    GDNCTL_TRY_ASSIGN(RayAccess access, open_access(place, context));
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

Result<JobDestination> choose_destination(const DestinationOptions& options, Context& context) {
    const auto finished = [&](JobDestination place) {
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
    const std::string usual(k_default_cluster);
    std::error_code ignored;
    if (fs::exists(project_root(context) / "infra" / ("marin-" + usual + ".yaml"), ignored)) {
        GDNCTL_TRY_ASSIGN(JobDestination place, named_destination(usual, "built-in default", context));
        place.by_default = true;
        return finished(std::move(place));
    }
    JobDestination place = local_destination("no other cluster is configured");
    place.by_default = true;
    return place;
}

Result<RayAccess> open_access(const JobDestination& place, Context& context) {
    RayAccess access;
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

Result<std::unique_ptr<JobBackend>> open_backend(const JobDestination& place, const DestinationOptions& options,
                                                 Context& context) {
    if (!place.is_local()) return open_ray(place, context);
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

std::string cluster_words(const JobPlace& place) {
    if (place.cluster.empty()) return " --ray-address " + text::shell_quote(place.address);
    const std::string option = place.cluster.ends_with(".yaml") ? " --cluster-config " : " --cluster ";
    return option + text::shell_quote(place.cluster);
}

std::string cluster_words(const JobBackend& backend) {
    return cluster_words(JobPlace{backend.name(), backend.cluster(), backend.address(), {}});
}

}  // namespace gdnctl
