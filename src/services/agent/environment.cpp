// The part of our environment that an agent may see: an allow-list, never a deny-list.
#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"
#include "platform/env.h"
#include "services/agent/agent.h"

namespace gdnctl {

namespace {

constexpr std::array<std::string_view, 3> k_never = {"HF_TOKEN", "WANDB_API_KEY", "RAY_AUTH_TOKEN"};

constexpr std::array k_names = {
    // user and paths
    std::string_view("PATH"), std::string_view("HOME"), std::string_view("USER"), std::string_view("LOGNAME"),
    std::string_view("SHELL"), std::string_view("LANG"), std::string_view("LANGUAGE"), std::string_view("TERM"),
    std::string_view("TMPDIR"), std::string_view("TZ"), std::string_view("HOSTNAME"),
    // network access
    std::string_view("HTTP_PROXY"), std::string_view("HTTPS_PROXY"), std::string_view("NO_PROXY"),
    std::string_view("ALL_PROXY"), std::string_view("http_proxy"), std::string_view("https_proxy"),
    std::string_view("no_proxy"), std::string_view("all_proxy"), std::string_view("SSL_CERT_FILE"),
    std::string_view("SSL_CERT_DIR"), std::string_view("REQUESTS_CA_BUNDLE"), std::string_view("CURL_CA_BUNDLE"),
    std::string_view("NODE_EXTRA_CA_CERTS"), std::string_view("SSH_AUTH_SOCK"),
    // the agent itself and its model provider
    std::string_view("CODEX_HOME"), std::string_view("CODEX_API_KEY"), std::string_view("OPENAI_API_KEY"),
    std::string_view("OPENAI_BASE_URL"), std::string_view("OPENAI_ORGANIZATION"), std::string_view("OPENAI_PROJECT"),
    // building and measuring
    std::string_view("CC"), std::string_view("CXX"), std::string_view("CFLAGS"), std::string_view("CXXFLAGS"),
    std::string_view("CPPFLAGS"), std::string_view("LDFLAGS"), std::string_view("LD_LIBRARY_PATH"),
    std::string_view("MAKEFLAGS"), std::string_view("VIRTUAL_ENV"), std::string_view("PYTHONPATH"),
    std::string_view("PYTHONDONTWRITEBYTECODE"), std::string_view("CONDA_PREFIX"), std::string_view("XLA_FLAGS"),
    std::string_view("LIBTPU_INIT_ARGS"), std::string_view("OMP_NUM_THREADS"), std::string_view("MARIN_PREFIX"),
    std::string_view("HF_HOME"), std::string_view("WANDB_MODE"), std::string_view("WANDB_ENTITY"),
    std::string_view("WANDB_PROJECT"), std::string_view("RAY_ADDRESS"), std::string_view("RAY_AUTH_TOKEN_PATH"),
    std::string_view("GOOGLE_CLOUD_PROJECT"), std::string_view("NO_COLOR"), std::string_view("GDNCTL")};

constexpr std::array<std::string_view, 12> k_prefixes = {
    "LC_",     "XDG_",        "GDNCTL_",        "UV_",         "JAX_",      "TPU_",
    "CCACHE_", "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_", "CLOUDSDK_", "CARGO_"};

// A name that contains one of these is not allowed by a prefix.
bool speaks_of_a_secret(std::string_view any_name) {
    const std::string name = text::to_lower(any_name);
    constexpr std::array<std::string_view, 7> k_words = {"token",  "secret", "passw",     "api_key",
                                                         "apikey", "_key",   "credential"};
    return std::any_of(k_words.begin(), k_words.end(),
                       [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

constexpr std::size_t k_shortest = 8;

// Whether a value is the secret that its name suggests. MAX_TOKENS, SSH_KEY_FILE and GIT_CONFIG_KEY_0 hold none, nor
// does the path of a file. A secret may also begin with '/'.
bool is_secret(std::string_view any_name, std::string_view value) {
    constexpr std::array<std::string_view, 9> k_ends = {"token",  "secret", "password", "passwd",    "_pass",
                                                        "apikey", "_key",   "_pat",     "credential"};
    const std::string name = text::to_lower(any_name);
    if (value.size() < k_shortest || name.ends_with("ssh_key")) return false;
    if (std::none_of(k_ends.begin(), k_ends.end(), [&](std::string_view end) { return name.ends_with(end); }))
        return false;
    std::error_code problem;
    return value.front() != '/' || !std::filesystem::exists(value, problem);
}

// Registers it whole and line by line, because masking works on single lines.
void register_lines(std::string_view secret) {
    register_secret(secret);
    for (const std::string_view line : text::split(secret, '\n')) {
        if (line.size() >= k_shortest) register_secret(line);
    }
}

bool is_allowed(std::string_view name) {
    if (std::find(k_names.begin(), k_names.end(), name) != k_names.end()) return true;
    return !speaks_of_a_secret(name) && std::any_of(k_prefixes.begin(), k_prefixes.end(),
                                                    [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Passes on git settings in variables, renumbered, but only from harmless sections: any other value may be a password.
void put_git_settings(const Env& env, std::map<std::string, std::string>& variables) {
    constexpr std::array<std::string_view, 6> k_sections = {"safe.", "user.", "init.", "core.", "commit.", "protocol."};
    constexpr std::int64_t k_most = 1000;
    std::erase_if(variables, [](const auto& one) {
        const std::string_view name = one.first;
        return name == "GIT_CONFIG_COUNT" || name == "GIT_CONFIG_PARAMETERS" || name.starts_with("GIT_CONFIG_KEY_") ||
               name.starts_with("GIT_CONFIG_VALUE_");
    });
    const std::int64_t count = text::parse_int(env.get("GIT_CONFIG_COUNT").value_or("")).value_or(0);
    int given = 0;
    for (std::int64_t i = 0; i < std::min(count, k_most); ++i) {
        const auto key = env.get(fmt::format("GIT_CONFIG_KEY_{}", i));
        const auto value = env.get(fmt::format("GIT_CONFIG_VALUE_{}", i));
        if (!key || !value) continue;
        const std::string name = text::to_lower(*key);
        if (name.ends_with("extraheader")) register_lines(*value);
        if (std::none_of(k_sections.begin(), k_sections.end(), [&](auto section) { return name.starts_with(section); }))
            continue;
        variables[fmt::format("GIT_CONFIG_KEY_{}", given)] = *key;
        variables[fmt::format("GIT_CONFIG_VALUE_{}", given)] = *value;
        variables["GIT_CONFIG_COUNT"] = std::to_string(++given);
    }
}

Status check_name(const std::string& name) {
    if (std::find(k_never.begin(), k_never.end(), name) != k_never.end()) {
        return fail(ErrorKind::usage, fmt::format("{} cannot be passed to an agent", name),
                    "only gdnctl itself needs it");
    }
    const bool bad =
        name.empty() || name.find_first_of("=\n ") != std::string::npos || name.find('\0') != std::string::npos;
    if (bad) {
        return fail(ErrorKind::usage, fmt::format("'{}' is not a variable name", name),
                    "give the name without a value");
    }
    return {};
}

}  // namespace

Result<std::map<std::string, std::string>> agent_environment(const Env& env, const std::vector<std::string>& also,
                                                             std::string_view loop_id) {
    std::map<std::string, std::string> variables;
    for (const auto& [name, value] : env.all()) {
        // Also secrets that the agent does not get: its commands may find them in files, and checks have them.
        if (is_secret(name, value)) register_lines(value);
        if (is_allowed(name)) variables.emplace(name, value);
    }
    put_git_settings(env, variables);
    for (const auto& name : also) {
        GDNCTL_TRY(check_name(name));
        const auto value = env.get(name);
        if (!value) continue;
        if (speaks_of_a_secret(name)) register_lines(*value);
        variables.insert_or_assign(name, *value);
    }
    variables.insert_or_assign(std::string(k_loop_id_variable), std::string(loop_id));
    return variables;
}

}  // namespace gdnctl
