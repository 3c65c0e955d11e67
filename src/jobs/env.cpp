#include "jobs/env.h"

#include <algorithm>
#include <array>

#include "core/redact.h"
#include "jobs/place.h"
#include "platform/env.h"
#include "services/cluster/cluster.h"
#include "services/hub/wandb/wandb.h"

namespace gdnctl {

bool names_a_secret(std::string_view name) {
    constexpr std::array<std::string_view, 6> k_words = {"TOKEN", "KEY", "SECRET", "PASSW", "CREDENTIAL", "AUTH"};
    std::string upper(name);
    for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return std::any_of(k_words.begin(), k_words.end(),
                       [&](std::string_view word) { return upper.find(word) != std::string::npos; });
}

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

}  // namespace gdnctl
