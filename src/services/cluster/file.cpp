// Finds the description of a cluster, a file or a table, and reads it.
#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/machine.h"
#include "platform/yaml.h"
#include "services/cluster/cluster.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_file_limit = std::size_t{1} << 20;
constexpr std::string_view k_prefix = "marin-";
constexpr std::string_view k_other_ways =
    "use `--cluster-config FILE` for a cluster file elsewhere, `--ray-address URL` for a Ray dashboard, or `--iris-url "
    "URL` for an Iris controller";
constexpr std::array<std::string_view, 2> k_endings = {".yaml", ".yml"};
// Folders of Iris files: the user's, then the repository's.
constexpr std::string_view k_user_folder = ".config/marin/clusters";
constexpr std::string_view k_iris_folder = "lib/iris/config";

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

// Files of the folder whose names are `prefix`, a name, and one of `endings`: the names.
void add_names(const fs::path& folder, std::string_view prefix, std::span<const std::string_view> endings,
               std::vector<std::string>& names) {
    std::error_code problem;
    for (fs::directory_iterator it(folder, problem), end; !problem && it != end; it.increment(problem)) {
        const std::string stem = it->path().stem().string();
        const std::string ending = it->path().extension().string();
        const bool known = std::find(endings.begin(), endings.end(), ending) != endings.end();
        if (known && stem.starts_with(prefix) && is_file(it->path())) names.push_back(stem.substr(prefix.size()));
    }
}

// The files that a name may stand for, in order, each with its text for people.
std::vector<std::pair<fs::path, std::string>> candidates(const ClusterPlaces& places, const std::string& name) {
    std::vector<std::pair<fs::path, std::string>> files;
    const std::string bare = name.starts_with(k_prefix) ? name.substr(k_prefix.size()) : name;
    for (const std::string& stem : {name, bare, bare + "-a", bare + "-b", bare + "-vllm"}) {
        const std::string place = fmt::format("infra/{}{}.yaml", k_prefix, stem);
        if (files.empty() || files.front().second != place) files.emplace_back(places.root / place, place);
    }
    files.back().second += " in " + places.root.string();
    for (const std::string_view ending : k_endings) {
        if (places.home.empty()) break;
        const std::string place = fmt::format("{}/{}{}", k_user_folder, name, ending);
        files.emplace_back(places.home / place, "~/" + place);
    }
    for (const std::string_view ending : k_endings) {
        const std::string place = fmt::format("{}/{}{}", k_iris_folder, name, ending);
        files.emplace_back(places.root / place, place);
    }
    files.back().second += " in " + places.root.string();
    return files;
}

const ConfigTable* cluster_tables(const ClusterPlaces& places) {
    const ConfigValue* value = places.config == nullptr ? nullptr : places.config->find("clusters");
    return value == nullptr ? nullptr : value->as_table();
}

}  // namespace

std::vector<std::string> cluster_names(const ClusterPlaces& places) {
    std::vector<std::string> names;
    if (const ConfigTable* tables = cluster_tables(places)) {
        for (const auto& [name, table] : *tables) names.push_back(name);
    }
    add_names(places.root / "infra", k_prefix, std::span(k_endings).first(1), names);
    if (!places.home.empty()) add_names(places.home / k_user_folder, "", k_endings, names);
    add_names(places.root / k_iris_folder, "", k_endings, names);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

Result<fs::path> find_cluster_file(const ClusterPlaces& places, const std::string& name) {
    const bool has_ending = std::any_of(k_endings.begin(), k_endings.end(),
                                        [&](std::string_view ending) { return name.ends_with(ending); });
    if (has_ending || (!name.empty() && is_file(places.cwd / name))) return (places.cwd / name).lexically_normal();
    std::vector<std::string> looked;
    if (name.empty() || name.find('/') != std::string::npos) {
        looked.push_back((places.cwd / name).lexically_normal().string());
    } else {
        for (auto& [file, place] : candidates(places, name)) {
            if (is_file(file)) return file;
            looked.push_back(std::move(place));
        }
    }
    std::vector<std::string> known = cluster_names(places);
    known.insert(known.begin(), "local");
    const auto near = text::nearest(name, known);
    return fail(ErrorKind::usage,
                fmt::format("No cluster config found for region {}: looked for {}", name, text::join(looked, ", ")),
                fmt::format("{}known clusters: {}; {}", near ? fmt::format("did you mean `{}`? ", *near) : "",
                            text::join(known, ", "), k_other_ways));
}

namespace {

void read_ray(const Json& yaml, const fs::path& home, ClusterFile& file) {
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
}

// The words of a list, or the keys of a table.
std::vector<std::string> words_or_keys(const Json& value) {
    std::vector<std::string> words;
    for (const auto& [key, item] : value.items()) {
        if (value.is_object()) words.push_back(key);
        if (value.is_array() && item.is_string()) words.push_back(item.get<std::string>());
    }
    return words;
}

// The TPU slices that an Iris cluster can start.
std::vector<ClusterNodeType> iris_types(const Json& yaml) {
    std::vector<ClusterNodeType> types;
    if (const Json* pools = json::object(yaml, "tpu_pools")) {
        for (const auto& [name, pool] : pools->items()) {
            std::string family = json::text(pool, "family");
            if (family == "v5e") family = "v5litepod";  // as Google names its slices
            for (const std::string& size : words_or_keys(json::field(pool, "sizes"))) {
                if (!family.empty()) types.push_back({name, fmt::format("{}-{}", family, size), {}});
            }
        }
    }
    if (const Json* groups = json::object(yaml, "scale_groups")) {
        for (const auto& [name, group] : groups->items()) {
            const std::string variant = json::text_at(group, "/resources/device_variant");
            const bool tpu = json::text_at(group, "/resources/device_type") == "tpu";
            if (tpu && !variant.empty()) types.push_back({name, variant, {}});
        }
    }
    return types;
}

// A key without a value counts too.
bool has_any_key(const Json& yaml, std::initializer_list<const char*> names) {
    return yaml.is_object() &&
           std::any_of(names.begin(), names.end(), [&](const char* name) { return yaml.contains(name); });
}

Status read_iris(const Json& yaml, ClusterFile& file) {
    IrisSettings& iris = file.iris;
    file.cluster_name = json::text(yaml, "name");
    if (file.cluster_name.empty()) file.cluster_name = file.path.stem().string();
    iris.dashboard_url = json::text(yaml, "dashboard_url");
    while (iris.dashboard_url.ends_with('/')) iris.dashboard_url.pop_back();
    if (const Json* iap = json::object_at(yaml, "/auth/iap")) {
        iris.needs_login = true;
        // The files in a checkout and those that `iris` installs name the client differently.
        const auto either = [&](const char* name, const char* other) {
            const std::string value = json::text(*iap, name);
            return value.empty() ? json::text(*iap, other) : value;
        };
        iris.client.id = either("oauth_client_id", "desktop_oauth_client_id");
        iris.client.secret = either("oauth_client_secret", "desktop_oauth_client_secret");
        iris.audiences = json::texts(*iap, "programmatic_audiences");
        if (const std::string url = json::text(*iap, "url"); !url.empty()) {
            auto address = normalize_address(url, PlaceKind::iris);
            if (!address)
                return fail(ErrorKind::config, file.path.string() + ": auth.iap.url: " + address.error().message);
            file.address = ClusterAddress{std::move(*address), file.path.string() + ": auth.iap.url"};
        }
    }
    file.project = json::text_at(yaml, "/platform/gcp/project_id");
    file.zone = json::text_at(yaml, "/controller/gcp/zone");
    iris.label_prefix = json::text_at(yaml, "/platform/label_prefix");
    iris.impersonate = json::text_at(yaml, "/defaults/ssh/impersonate_service_account");
    if (const auto port = text::parse_int(json::text_at(yaml, "/controller/gcp/port"))) iris.port = *port;
    for (const char* way : {"gcp", "manual", "coreweave", "local"}) {
        if (has_any_key(json::field(yaml, "controller"), {way})) iris.controller = way;
    }
    file.node_types = iris_types(yaml);
    return {};
}

}  // namespace

Result<ClusterFile> read_cluster_file(const fs::path& path, const fs::path& home) {
    if (!is_file(path)) {
        return fail(ErrorKind::usage, "no such cluster file: " + path.string(), std::string(k_other_ways));
    }
    GDNCTL_TRY_ASSIGN(const std::string bytes, read_file(path, {k_file_limit, ErrorKind::usage}));
    return parse_cluster_file(bytes, path, home);
}

Result<ClusterFile> parse_cluster_file(std::string_view text, const fs::path& path, const fs::path& home) {
    GDNCTL_TRY_ASSIGN(const Json yaml, parse_yaml(text, path.string()));
    ClusterFile file;
    file.path = path;
    if (has_any_key(yaml, {"available_node_types", "provider", "cluster_name"})) {
        read_ray(yaml, home, file);
        return file;
    }
    const bool iris = has_any_key(yaml, {"controller", "platform", "tpu_pools", "scale_groups"});
    if (!iris && !has_any_key(json::field(yaml, "auth"), {"iap"})) {
        return fail(ErrorKind::config, path.string() + ": neither a Ray nor an Iris cluster file");
    }
    file.kind = PlaceKind::iris;
    GDNCTL_TRY(read_iris(yaml, file));
    return file;
}

namespace {

// [clusters.NAME], with the origin of each value.
struct ClusterTable {
    std::optional<PlaceKind> kind;
    std::string config, tpu;
    std::optional<ClusterAddress> url;
    OAuthClient client;
    ConfigOrigin origin;
};

Result<ClusterTable> read_table(const std::string& name, const ConfigValue& value) {
    ClusterTable table;
    table.origin = value.origin;
    const auto wrong = [](const ConfigValue& at, std::string what, std::string hint = {}) {
        return fail(ErrorKind::config, fmt::format("{}: {}", at.origin.text(), what), std::move(hint));
    };
    if (value.as_table() == nullptr) return wrong(value, fmt::format("clusters.{} must be a table", name));
    std::string kind, url;
    const std::map<std::string, std::string*, std::less<>> keys = {{"kind", &kind},
                                                                   {"url", &url},
                                                                   {"config", &table.config},
                                                                   {"tpu", &table.tpu},
                                                                   {"oauth_client_id", &table.client.id},
                                                                   {"oauth_client_secret", &table.client.secret}};
    for (const auto& [key, item] : *value.as_table()) {
        const auto known = keys.find(key);
        const std::string path = fmt::format("clusters.{}.{}", name, key);
        if (known == keys.end()) {
            std::vector<std::string> names;
            for (const auto& [one, place] : keys) names.push_back(one);
            const auto near = text::nearest(key, names);
            return wrong(item, "unknown key " + path,
                         near ? fmt::format("did you mean `{}`?", *near) : "known keys: " + text::join(names, ", "));
        }
        if (item.as_string() == nullptr) return wrong(item, path + " must be a string");
        *known->second = *item.as_string();
        if (key == "kind") {
            table.kind = parse_place_kind(kind);
            if (!table.kind || *table.kind == PlaceKind::local) {
                return wrong(item, fmt::format("{}: unknown kind '{}'", path, kind), "`ray` or `iris`");
            }
        }
        if (key == "url") table.url = ClusterAddress{url, item.origin.text()};
    }
    return table;
}

Result<ClusterFile> with_table(ClusterFile file, const std::string& name, ClusterTable table) {
    const auto wrong = [&](const std::string& origin, std::string_view what) {
        return fail(ErrorKind::config, fmt::format("{}: [clusters.{}] {}", origin, name, what));
    };
    if (table.kind && !file.path.empty() && *table.kind != file.kind) {
        return wrong(table.origin.text(), fmt::format("says kind = \"{}\", but {} is a file of kind \"{}\"",
                                                      to_text(*table.kind), file.path.string(), to_text(file.kind)));
    }
    if (table.kind) file.kind = *table.kind;
    if (file.path.empty()) file.cluster_name = name;
    if (table.url) {
        auto url = normalize_address(table.url->url, file.kind);
        if (!url) return wrong(table.url->origin, "url: " + url.error().message);
        file.address = ClusterAddress{std::move(*url), table.url->origin};
        file.iris.needs_login = file.iris.needs_login || file.address->url.starts_with("https:");
    }
    if (!table.tpu.empty()) file.tpu = std::move(table.tpu);
    if (!table.client.id.empty()) file.iris.client.id = std::move(table.client.id);
    if (!table.client.secret.empty()) file.iris.client.secret = std::move(table.client.secret);
    return file;
}

}  // namespace

Result<ClusterFile> find_cluster(const ClusterPlaces& places, const std::string& name) {
    const ConfigTable* tables = cluster_tables(places);
    const auto found = tables == nullptr ? ConfigTable::const_iterator() : tables->find(name);
    if (tables == nullptr || found == tables->end()) {
        GDNCTL_TRY_ASSIGN(const fs::path path, find_cluster_file(places, name));
        return read_cluster_file(path, places.home);
    }
    GDNCTL_TRY_ASSIGN(ClusterTable table, read_table(name, found->second));
    ClusterFile file;
    if (!table.config.empty()) {
        GDNCTL_TRY_ASSIGN(
            file, read_cluster_file(places.root / expand_home(table.config, places.home.string()), places.home));
    } else if (!table.url) {
        // The table adds to a file of the same name.
        const auto path = find_cluster_file(places, name);
        if (!path) {
            return fail(
                ErrorKind::config,
                fmt::format("{}: [clusters.{}] has neither `url` nor `config`, and no cluster file has its name",
                            table.origin.text(), name),
                "add url = \"https://HOST\", or config = \"FILE\"");
        }
        GDNCTL_TRY_ASSIGN(file, read_cluster_file(*path, places.home));
    } else if (!table.kind) {
        return fail(
            ErrorKind::config,
            fmt::format("{}: [clusters.{}] does not say which kind of cluster it is", table.origin.text(), name),
            "add kind = \"iris\" or kind = \"ray\"");
    }
    return with_table(std::move(file), name, std::move(table));
}

namespace {

// The TPU type of an Iris cluster that suits most jobs: v5p-8, else the smallest slice on one machine; empty: none.
std::string usual_iris_tpu(const ClusterFile& file) {
    std::string best;
    double fewest = 0;
    for (const std::string& type : tpu_types(file)) {
        if (type == "v5p-8") return type;
        const auto resources = tpu_resources(type);
        if (!resources) continue;
        const double chips = resources->at("TPU");
        if (best.empty() || chips < fewest) {
            best = type;
            fewest = chips;
        }
    }
    return best;
}

}  // namespace

Result<std::string> infer_tpu(const ClusterFile& file) {
    if (!file.tpu.empty()) return file.tpu;
    if (file.kind == PlaceKind::iris) {
        if (std::string usual = usual_iris_tpu(file); !usual.empty()) return usual;
    }
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
