#include <algorithm>

#include <fmt/format.h>

#include "cli/config.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/toml.h"

namespace gdnctl::cli {

namespace {

namespace fs = std::filesystem;
using Kind = ConfigOrigin::Kind;

constexpr std::size_t k_file_limit = std::size_t{1} << 20;

ConfigTable single(std::string_view key, std::string value, ConfigOrigin origin) {
    ConfigTable table;
    table.emplace(key, ConfigValue{std::move(value), std::move(origin)});
    return table;
}

ConfigTable builtin_defaults() { return single("cluster", "local", {Kind::builtin, {}, 0}); }

// Paths below the working directory are shown relative to it, as people type them.
std::string shown_path(const fs::path& path, const fs::path& cwd) {
    const fs::path relative = path.lexically_relative(cwd);
    return relative.empty() || relative.begin()->string() == ".." ? path.string() : relative.string();
}

tl::unexpected<Error> wrong_type(const ConfigValue& value, std::string_view key, std::string_view type) {
    return fail(ErrorKind::config, fmt::format("{}: '{}' must be a {}", value.origin.text(), key, type));
}

// Top level only: tables are checked by the code that reads them.
Status check_keys(const ConfigTable& table, std::vector<std::string>& warnings) {
    std::vector<std::string> names;
    for (const ConfigKey& key : config_keys()) names.emplace_back(key.name);
    for (const auto& [name, value] : table) {
        const auto& keys = config_keys();
        const auto known = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.name == name; });
        if (known == keys.end()) {
            const auto meant = text::nearest(name, names);
            warnings.push_back(fmt::format("{}: unknown key '{}'{}", value.origin.text(), name,
                                           meant ? fmt::format("; did you mean `{}`?", *meant) : std::string()));
        } else if (known->type == "string" && value.as_string() == nullptr) {
            return wrong_type(value, name, known->type);
        } else if (known->type == "table") {
            if (value.as_table() == nullptr) return wrong_type(value, name, known->type);
            for (const auto& [inner, item] : *value.as_table()) {
                if (known->holds_values) break;
                if (item.as_table() == nullptr) return wrong_type(item, fmt::format("{}.{}", name, inner), "table");
            }
        }
    }
    return {};
}

Status add_file(LoadedConfig& loaded, const fs::path& path, const fs::path& cwd, Kind kind) {
    const std::string shown = shown_path(path, cwd);
    const auto text = read_file(path, {.limit = k_file_limit, .missing = ErrorKind::config});
    if (!text && text.error().kind == ErrorKind::bad_input) {  // too large
        return fail(ErrorKind::config, text.error().message,
                    "check that this is the right file; --config selects another one");
    }
    if (!text) return tl::unexpected(text.error());
    GDNCTL_TRY_ASSIGN(const ConfigTable table, parse_toml(*text, {kind, shown, 0}));
    GDNCTL_TRY(check_keys(table, loaded.warnings));
    loaded.config.overlay(table);
    loaded.files.push_back(path);
    return {};
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
    static const std::vector<ConfigKey> keys = {
        {"target", "GDNCTL_TARGET", "string", "target to use if --target is not given"},
        {"cluster", "GDNCTL_CLUSTER", "string", "where jobs run if --cluster is not given"},
        {"dev_tpu_allocator", "GDNCTL_DEV_TPU_ALLOCATOR", "string",
         "program that holds a development TPU for codex-loop"},
        {"targets", "", "table", "one [targets.NAME] table per target"},
        {"codex-loop", "", "table", "options of codex-loop, by name without the dashes", true},
    };
    return keys;
}

std::optional<fs::path> find_project_config(const fs::path& from) { return find_upward(from, "gdnctl.toml"); }

fs::path user_config_path(const Env& env) {
    if (const std::string xdg = env.get("XDG_CONFIG_HOME").value_or(""); !xdg.empty()) {
        return fs::path(xdg) / "gdnctl" / "config.toml";
    }
    const std::string home = env.get("HOME").value_or("");
    return home.empty() ? fs::path() : fs::path(home) / ".config" / "gdnctl" / "config.toml";
}

Result<LoadedConfig> load_config(const Env& env, const ConfigRequest& request) {
    LoadedConfig loaded;
    loaded.config.overlay(builtin_defaults());
    const fs::path user = user_config_path(env);
    std::error_code ignored, problem;
    // A folder without permission is an error; a home directory without permission, such as that of another user, is
    // not.
    if (!user.empty() && (fs::exists(user, problem) || (problem && fs::exists(user.parent_path(), ignored)))) {
        GDNCTL_TRY(add_file(loaded, user, request.cwd, Kind::user_file));
    }
    if (request.file) {
        const fs::path file = (request.cwd / *request.file).lexically_normal();
        if (!fs::exists(file, ignored)) {
            return fail(ErrorKind::usage, fmt::format("--config: no such file: {}", *request.file));
        }
        GDNCTL_TRY(add_file(loaded, file, request.cwd, Kind::project_file));
    } else if (const auto project = find_project_config(request.cwd)) {
        GDNCTL_TRY(add_file(loaded, *project, request.cwd, Kind::project_file));
    }
    for (const ConfigKey& key : config_keys()) {
        if (key.variable.empty()) continue;
        const std::string value = env.get(key.variable).value_or("");
        if (value.empty()) continue;
        loaded.config.overlay(single(key.name, value, {Kind::environment, std::string(key.variable), 0}));
    }
    if (request.target) loaded.config.overlay(single("target", *request.target, {Kind::flag, "--target", 0}));
    return loaded;
}

}  // namespace gdnctl::cli
