#include "jobs/submit.h"

#include <algorithm>
#include <random>
#include <set>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"
#include "core/version.h"
#include "jobs/tree.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/machine.h"
#include "services/cluster/cluster.h"
#include "services/devtpu/host_connection.h"
#include "services/hub/wandb/wandb.h"

namespace gdnctl {

Status add_wandb_server(std::vector<JobEnv>& env, const Env& own) {
    const auto last = [&](std::string_view name) {
        return std::find_if(env.rbegin(), env.rend(), [&](const JobEnv& item) { return item.name == name; });
    };
    const auto key = last("WANDB_API_KEY");
    const bool ours = key != env.rend() && !key->value.empty() && key->value == own.get("WANDB_API_KEY");
    if (!ours || last("WANDB_BASE_URL") != env.rend()) return {};
    auto server = server_for_key(own, key->value);
    if (!server) {
        Error error = std::move(server).error();
        if (error.kind == ErrorKind::authentication) error.kind = ErrorKind::local_io;  // nobody has refused us
        return tl::unexpected(std::move(error).within("WANDB_API_KEY cannot be passed on to the job"));
    }
    if (!server->empty()) env.push_back({"WANDB_BASE_URL", std::move(*server)});
    return {};
}

namespace {

// In this order, later entries win: `env:` of .marin.yaml, HF_TOKEN and WANDB_API_KEY of this environment unless that
// table has them, GIT_COMMIT, the target's variables. Secret values are registered for redaction. Errors: config
// (.marin.yaml).
Result<std::vector<JobEnv>> cluster_job_env(const ClusterEnvOptions& options, const Context& context) {
    std::vector<JobEnv> env;
    GDNCTL_TRY_ASSIGN(const auto table, read_env_table(project_root(context) / ".marin.yaml"));
    for (const auto& [name, value] : table) env.push_back({name, value});
    for (const char* name : {"HF_TOKEN", "WANDB_API_KEY"}) {
        const auto given = std::any_of(env.begin(), env.end(), [&](const JobEnv& item) { return item.name == name; });
        const auto value = context.env.get(name);
        if (!given && value && !value->empty()) env.push_back({name, *value});
    }
    if (options.no_secrets) std::erase_if(env, [](const JobEnv& item) { return names_a_secret(item.name); });
    for (const JobEnv& item : env) {
        // Other values are settings; masking the word `online` wherever it is printed would not help anyone.
        if (names_a_secret(item.name)) register_secret(item.value);
    }
    if (!options.git_sha.empty()) env.push_back({"GIT_COMMIT", options.git_sha});
    for (const auto& [name, value] : options.target) env.push_back({name, value});
    return env;
}

namespace fs = std::filesystem;

std::optional<fs::path> working_dir(const SubmitOptions& options, const Context& context) {
    if (!options.working_dir) return project_root(context);
    if (*options.working_dir == "none") return std::nullopt;
    return (context.cwd / *options.working_dir).lexically_normal();
}

// The lines of a requirements file without comments and blank lines. Error: usage.
Result<std::vector<std::string>> read_requirements(const fs::path& path) {
    GDNCTL_TRY_ASSIGN(const std::string text, read_file(path));
    std::vector<std::string> lines;
    for (std::string_view line : text::split(text, '\n')) {
        line = text::trim(line.substr(0, line.starts_with('#') ? 0 : line.find(" #")));
        if (line.empty()) continue;
        if (line.ends_with('\\') || line.starts_with('-')) {
            return fail(ErrorKind::usage, path.string() + ": only plain requirements can be sent with a job, not '" +
                                              std::string(line) + "'");
        }
        lines.emplace_back(line);
    }
    return lines;
}

// On a cluster, a background child outlives its job and may keep the chips. Therefore, the rest of the job's process
// group is ended with its command. (A shell runs no EXIT trap when a signal ends it.)
constexpr std::string_view k_clear_group =
    "trap 'rc=$?; trap \"\" TERM; kill 0; exit $rc' EXIT; trap 'exit 143' TERM; ";

// The target's working directory is missing from the package: found here, before waiting for a machine.
Status check_workdir(const JobPlan& plan, const WorkingTree& tree) {
    const std::string folder = fs::path(plan.command.workdir).lexically_normal().string();
    if (folder.empty() || folder == ".") return {};
    const std::string prefix = folder.ends_with('/') ? folder : folder + "/";
    const auto first = std::lower_bound(tree.files.begin(), tree.files.end(), prefix);
    if (first != tree.files.end() && first->starts_with(prefix)) return {};
    return fail(ErrorKind::config,
                fmt::format("target '{}': its {} runs in {}, which is not a folder with files in {}", plan.target,
                            plan.kind, folder, tree.root.string()),
                "correct its workdir in gdnctl.toml, or pass -C with the right repository");
}

// What must not be shown if it is a word of the command line too.
void register_secrets(const std::vector<JobEnv>& env, const std::vector<JobEnv>& extra, const Env& own) {
    for (const JobEnv& item : env) {
        if (names_a_secret(item.name)) register_secret(item.value);
    }
    for (const JobEnv& item : extra) register_secret(item.value);
    for (const char* name : {"HF_TOKEN", "WANDB_API_KEY", "RAY_AUTH_TOKEN"}) {
        register_secret(own.get(name).value_or(""));
    }
}

}  // namespace

void renew_identity(JobRequest& request, std::string_view kind, const Context& context) {
    std::random_device random;
    request.submission_id = make_submission_id(kind, user_name(context.env), context.clock.wall(), random());
    request.metadata["nonce"] = random_hex(16);
}

std::string own_command(std::string_view entrypoint) {
    if (entrypoint.starts_with(k_clear_group)) entrypoint.remove_prefix(k_clear_group.size());
    const std::size_t guard =
        entrypoint.starts_with("env -u ") ? entrypoint.find(devtpu::k_guard_end) : std::string_view::npos;
    if (guard != std::string_view::npos) entrypoint.remove_prefix(guard + devtpu::k_guard_end.size());
    return redact(entrypoint);
}

std::vector<std::string> names_of(const std::vector<JobEnv>& env) {
    std::set<std::string> names;
    for (const JobEnv& item : env) names.insert(item.name);
    return {names.begin(), names.end()};
}

Result<JobRequest> request_for(const JobPlan& plan, const SubmitOptions& options, bool on_cluster, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto extra, parse_env_items(options.env, "-e"));
    if (options.submission_id) GDNCTL_TRY(check_submission_id(*options.submission_id));

    JobRequest request;
    const std::string user = user_name(context.env);
    renew_identity(request, plan.kind, context);
    if (options.submission_id) request.submission_id = *options.submission_id;
    const auto facts = git_facts(project_root(context), context);
    request.metadata.insert(facts.begin(), facts.end());
    request.metadata["gdnctl_version"] = std::string(gdnctl::version());
    request.metadata["kind"] = plan.kind;
    request.metadata["target"] = plan.target;
    request.metadata["user"] = user;
    request.metadata["host"] = host_name().value_or("unknown");
    request.entrypoint = plan.guard + plan.command.entrypoint;
    if (on_cluster) {
        request.entrypoint.insert(0, k_clear_group);
        const auto sha = facts.find("git_sha");
        ClusterEnvOptions wanted{options.no_secrets, sha == facts.end() ? std::string() : sha->second,
                                 plan.cluster_env};
        GDNCTL_TRY_ASSIGN(request.env, cluster_job_env(wanted, context));
    }
    for (const auto& [name, value] : plan.command.env) request.env.push_back({name, value});
    request.env.insert(request.env.end(), extra.begin(), extra.end());
    if (on_cluster) GDNCTL_TRY(add_wandb_server(request.env, context.env));
    register_secrets(request.env, extra, context.env);
    request.resources = plan.command.resources;
    request.beside = plan.beside;
    request.keep_workdir = options.keep_workdir;
    request.bring_back = plan.bring_back;
    if (options.pip_requirements) {
        GDNCTL_TRY_ASSIGN(request.pip, read_requirements(context.cwd / *options.pip_requirements));
    }
    if (options.working_dir && options.working_dir->find("://") != std::string::npos) {
        request.working_dir_uri = *options.working_dir;
    } else if (const auto folder = working_dir(options, context)) {
        GDNCTL_TRY_ASSIGN(request.working_dir, list_working_tree(*folder, context));
        request.working_dir->added = plan.added;
        GDNCTL_TRY(check_workdir(plan, *request.working_dir));
        // An earlier trace must not look like this job's.
        std::erase_if(request.working_dir->files, [&](const std::string& file) {
            return !plan.bring_back.empty() && (file == plan.bring_back || file.starts_with(plan.bring_back + "/"));
        });
    }
    return request;
}

}  // namespace gdnctl
