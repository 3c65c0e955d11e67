// Finds the cluster file and reads it.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/yaml.h"
#include "services/cluster/cluster.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_file_limit = std::size_t{1} << 20;
constexpr std::string_view k_prefix = "marin-";
constexpr std::string_view k_other_ways =
    "use `--cluster-config FILE` for a cluster file elsewhere, or `--ray-address URL` for a dashboard";

// A file or anything else that can be read, except a folder.
bool is_file(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

fs::path resolve_home(const std::string& path, const fs::path& home) {
    if (path == "~") return home;
    return path.starts_with("~/") ? home / path.substr(2) : fs::path(path);
}

ClusterNodeType node_type(const std::string& name, const Json& value) {
    ClusterNodeType type;
    type.name = name;
    type.accelerator = json::text_at(value, "/node_config/acceleratorType");
    if (const Json* resources = json::object(value, "resources")) {
        for (const auto& [key, amount] : resources->items()) {
            const auto number = amount.is_string() ? text::parse_double(amount.get<std::string>()) : std::nullopt;
            if (number) type.resources[key] = *number;
        }
    }
    return type;
}

bool is_name(std::string_view word) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    return !word.empty() && letter(word.front()) &&
           std::all_of(word.begin(), word.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

std::vector<std::string> cluster_names(const fs::path& root) {
    std::vector<std::string> names;
    std::error_code problem;
    for (fs::directory_iterator it(root / "infra", problem), end; !problem && it != end; it.increment(problem)) {
        const std::string stem = it->path().stem().string();
        if (it->path().extension() == ".yaml" && stem.starts_with(k_prefix) && is_file(it->path())) {
            names.push_back(stem.substr(k_prefix.size()));
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

Result<fs::path> find_cluster_file(const fs::path& root, const fs::path& cwd, const std::string& name) {
    if (name.ends_with(".yaml") || (!name.empty() && is_file(cwd / name))) return (cwd / name).lexically_normal();
    const bool is_path = name.empty() || name.find('/') != std::string::npos;
    std::string places;
    if (is_path) {
        places = (cwd / name).lexically_normal().string();
    } else {
        const std::string bare = name.starts_with(k_prefix) ? name.substr(k_prefix.size()) : name;
        const std::array<std::string, 5> stems = {name, bare, bare + "-a", bare + "-b", bare + "-vllm"};
        for (const std::string& stem : stems) {
            const fs::path file = root / "infra" / fmt::format("{}{}.yaml", k_prefix, stem);
            if (is_file(file)) return file;
            const std::string place = fmt::format("infra/{}{}.yaml", k_prefix, stem);
            if (places.find(place) == std::string::npos) places += (places.empty() ? "" : ", ") + place;
        }
        places += " in " + root.string();
    }
    std::vector<std::string> known = cluster_names(root);
    known.insert(known.begin(), "local");
    const auto near = text::nearest(name, known);
    return fail(ErrorKind::usage, fmt::format("No cluster config found for region {}: looked for {}", name, places),
                fmt::format("{}known clusters: {}; {}", near ? fmt::format("did you mean `{}`? ", *near) : "",
                            text::join(known, ", "), k_other_ways));
}

Result<ClusterFile> read_cluster_file(const fs::path& path, const fs::path& home) {
    if (!is_file(path)) {
        return fail(ErrorKind::usage, "no such cluster file: " + path.string(), std::string(k_other_ways));
    }
    GDNCTL_TRY_ASSIGN(const std::string bytes, read_file(path, {k_file_limit, ErrorKind::usage}));
    GDNCTL_TRY_ASSIGN(const Json yaml, parse_yaml(bytes, path.string()));
    if (!yaml.is_object()) return fail(ErrorKind::config, path.string() + ": not a Ray cluster file (no table)");

    ClusterFile file;
    file.path = path;
    file.cluster_name = json::text(yaml, "cluster_name");
    if (const std::string user = json::text_at(yaml, "/auth/ssh_user"); !user.empty()) file.ssh_user = user;
    const std::string key = json::text_at(yaml, "/auth/ssh_private_key");
    file.ssh_key = resolve_home(key.empty() ? "~/.ssh/marin_ray_cluster.pem" : key, home);
    file.provider = json::text_at(yaml, "/provider/type");
    file.region = json::text_at(yaml, "/provider/region");
    file.zone = json::text_at(yaml, "/provider/availability_zone");
    file.project = json::text_at(yaml, "/provider/project_id");
    if (const Json* types = json::object(yaml, "available_node_types")) {
        for (const auto& [name, value] : types->items()) file.node_types.push_back(node_type(name, value));
    }
    return file;
}

Result<std::string> infer_tpu(const ClusterFile& file) {
    for (const ClusterNodeType& type : file.node_types) {
        if (type.name == "tpu_worker" && !type.accelerator.empty()) return type.accelerator;
    }
    for (const ClusterNodeType& type : file.node_types) {
        if (!type.accelerator.empty() && type.resources.contains("TPU")) return type.accelerator;
    }
    return fail(ErrorKind::usage, "Unable to infer TPU worker type from cluster config.",
                "name the accelerator, for example --tpu v5p-8");
}

std::vector<std::string> tpu_types(const ClusterFile& file) {
    std::vector<std::string> types;
    for (const ClusterNodeType& type : file.node_types) {
        if (type.accelerator.empty()) continue;
        if (std::find(types.begin(), types.end(), type.accelerator) == types.end()) types.push_back(type.accelerator);
    }
    return types;
}

bool offers_tpu(const ClusterFile& file, std::string_view type) {
    const std::string head = fmt::format("TPU-{}-head", type);
    return std::any_of(file.node_types.begin(), file.node_types.end(), [&](const ClusterNodeType& node) {
        return node.accelerator == type || node.resources.contains(head);
    });
}

Result<std::vector<std::pair<std::string, std::string>>> read_env_table(const fs::path& path) {
    std::vector<std::pair<std::string, std::string>> env;
    GDNCTL_TRY_ASSIGN(const auto bytes, read_file_if_exists(path, k_file_limit));
    if (!bytes) return env;
    GDNCTL_TRY_ASSIGN(const Json yaml, parse_yaml(*bytes, path.string()));
    const Json* table = json::find(yaml, "env");
    if (table == nullptr || table->is_null()) return env;
    if (!table->is_object()) return fail(ErrorKind::config, path.string() + ": `env` is not a table");
    for (const auto& [name, value] : table->items()) {
        if (!is_name(name)) {
            return fail(ErrorKind::config,
                        fmt::format("{}: `{}` in `env` is not a variable name", path.string(), name));
        }
        if (!value.is_string() && !value.is_null()) {
            return fail(ErrorKind::config, fmt::format("{}: `{}` in `env` is not a single value", path.string(), name));
        }
        env.emplace_back(name, value.is_null() ? std::string() : value.get<std::string>());
    }
    return env;
}

}  // namespace gdnctl
