#include "commands/job_place.h"

#include <algorithm>
#include <array>
#include <vector>

#include <pwd.h>
#include <unistd.h>

#include "gdnctl/core/config.h"
#include "gdnctl/core/log.h"
#include "gdnctl/core/target.h"
#include "gdnctl/core/text.h"
#include "gdnctl/platform/env.h"
#include "gdnctl/services/local_jobs.h"

namespace gdnctl::commands {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view k_default_cluster = "us-central1";
constexpr std::string_view k_local = "local";
constexpr std::string_view k_use_local = "`--cluster local` runs jobs on this machine";

bool file_exists(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

// infra/marin-*.yaml of the repository, by the names that --cluster takes.
std::vector<std::string> known_clusters(const fs::path& root) {
    std::vector<std::string> names = {std::string(k_local)};
    std::error_code problem;
    for (fs::directory_iterator it(root / "infra", problem), end; !problem && it != end; it.increment(problem)) {
        const std::string stem = it->path().stem().string();
        if (it->path().extension() == ".yaml" && stem.starts_with("marin-")) names.push_back(stem.substr(6));
    }
    std::sort(names.begin() + 1, names.end());
    return names;
}

std::optional<fs::path> cluster_file(const fs::path& root, const fs::path& cwd, const std::string& name) {
    if (name.ends_with(".yaml") || file_exists(cwd / name)) return cwd / name;
    const fs::path infra = root / "infra";
    if (file_exists(infra / ("marin-" + name + ".yaml"))) return infra / ("marin-" + name + ".yaml");
    const std::string bare = name.starts_with("marin-") ? name.substr(6) : name;
    for (const std::string_view suffix : {"", "-a", "-b", "-vllm"}) {
        const fs::path file = infra / ("marin-" + bare + std::string(suffix) + ".yaml");
        if (file_exists(file)) return file;
    }
    return std::nullopt;
}

tl::unexpected<Error> unreachable(const std::string& what) {
    return fail(ErrorKind::infrastructure, what + " cannot be reached: this version runs jobs on this machine only",
                std::string(k_use_local));
}

Status refuse_cluster(const std::string& name, const Context& context) {
    const fs::path root = project_root(context);
    const auto file = cluster_file(root, context.cwd, name);
    if (!file) {
        const auto known = known_clusters(root);
        return fail(ErrorKind::usage, "No cluster config found for region " + name,
                    "known clusters: " + text::join(known, ", "));
    }
    if (!file_exists(*file)) return fail(ErrorKind::usage, "no such cluster file: " + file->string());
    return unreachable("cluster " + name);
}

// An address that is a dashboard; anything else is named and ignored.
std::optional<std::string> address_variable(const Env& env) {
    for (const char* name : {"RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"}) {
        const auto value = env.get(name);
        if (!value || value->empty()) continue;
        if (value->starts_with("http://") || value->starts_with("https://")) return std::string(name) + "=" + *value;
        log::info("{}={} is not a dashboard address: ignored", name, *value);
    }
    return std::nullopt;
}

bool truthy(const std::optional<std::string>& value) {
    return value && !value->empty() && *value != "0" && text::to_lower(*value) != "false";
}

// Whether jobs go to this machine; an error when they go where this version cannot.
Result<bool> is_local(const PlaceOptions& options, Context& context) {
    if (options.ray_address) return unreachable(*options.ray_address);
    if (options.cluster_config) {
        if (!file_exists(context.cwd / *options.cluster_config)) {
            return fail(ErrorKind::usage, "no such cluster file: " + *options.cluster_config);
        }
        return unreachable("the cluster of " + *options.cluster_config);
    }
    if (options.cluster) {
        if (*options.cluster == k_local) return true;
        GDNCTL_TRY(refuse_cluster(*options.cluster, context));
    }
    if (const auto address = address_variable(context.env)) return unreachable(*address);
    GDNCTL_TRY_ASSIGN(const auto configured, context.config.string("cluster"));
    // The built-in default is what happens when nothing is at hand, not a choice.
    if (configured && context.config.find("cluster")->origin.kind != ConfigOrigin::Kind::builtin) {
        if (*configured == k_local) return true;
        GDNCTL_TRY(refuse_cluster(*configured, context));
    }
    if (file_exists(project_root(context) / "infra" / ("marin-" + std::string(k_default_cluster) + ".yaml"))) {
        return unreachable("cluster " + std::string(k_default_cluster));
    }
    return false;
}

}  // namespace

void describe_place(cli::Args& args, PlaceOptions& options) {
    args.option(options.cluster, {.names = "--cluster",
                                  .value = "NAME",
                                  .help = "cluster to use; `local` is this machine",
                                  .group = "Cluster",
                                  .default_text = "us-central1 where its file exists, else local",
                                  .complete = cli::Complete::cluster});
    args.option(options.cluster_config, {.names = "--cluster-config",
                                         .value = "FILE",
                                         .help = "cluster file (YAML) to use instead of a name",
                                         .group = "Cluster",
                                         .complete = cli::Complete::file});
    args.option(
        options.ray_address,
        {.names = "--ray-address", .value = "URL", .help = "dashboard to talk to directly", .group = "Cluster"});
    args.flag(options.no_local, {.names = "--no-local",
                                 .help = "fail instead of running on this machine (also GDNCTL_NO_LOCAL=1)",
                                 .group = "Cluster"});
    args.exit_code(4, "the cluster cannot be reached, or the job's supervisor died or never started");
}

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

Result<std::unique_ptr<JobBackend>> open_backend(const PlaceOptions& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const bool asked_for, is_local(options, context));
    if (options.no_local || truthy(context.env.get("GDNCTL_NO_LOCAL"))) {
        return fail(ErrorKind::infrastructure, "no cluster at hand, and the local backend is not allowed",
                    options.no_local ? "leave out --no-local to run on this machine"
                                     : "unset GDNCTL_NO_LOCAL to run on this machine");
    }
    if (!asked_for) log::info("no cluster at hand: using the local backend (this host, no TPU)");
    return make_local_jobs({context.state_dir, context.env.all(), &context.clock});
}

JobPlace place_of(const JobBackend& backend, std::string_view id) {
    return {backend.name(), backend.cluster(), backend.address(), backend.job_url(id)};
}

std::string cluster_words(const JobBackend& backend) { return " --cluster " + text::shell_quote(backend.cluster()); }

}  // namespace gdnctl::commands
