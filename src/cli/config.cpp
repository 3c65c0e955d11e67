#include "cli/config.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/fs.h"
#include "platform/machine.h"
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
        {"clusters", "", "table", "one [clusters.NAME] table per cluster"},
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

std::string config_template() {
    return R"(# gdnctl.toml: settings of this project. gdnctl reads the first file of this name that it finds from the working
# directory upward. An option on the command line wins over an environment variable, a variable over this
# file, and this file over ~/.config/gdnctl/config.toml. `gdnctl config show` shows where each value comes from.

# The target to use if --target is not given (GDNCTL_TARGET). Without it, the target is detected.
# target = "my-kernel"

# Where jobs run if --cluster is not given (GDNCTL_CLUSTER). `local` is this machine.
# cluster = "local"

# Command that allocates the development TPU of `codex-loop --hold-dev-tpu` (GDNCTL_DEV_TPU_ALLOCATOR).
# dev_tpu_allocator = "./allocate-tpu.sh"

# A cluster for --cluster NAME, or additions to the file of that name. Every key is optional.
# [clusters.marin]
# kind   = "iris"                          # or "ray"; a cluster file tells by itself
# url    = "https://iris.oa.dev"           # the controller or dashboard, instead of what the file says
# config = "lib/iris/config/marin.yaml"    # a cluster file, relative to the repository
# tpu    = "v5p-8"                         # what `--tpu auto` means there
# oauth_client_id     = "..."              # for the login, if no file of the checkout has it
# oauth_client_secret = "..."

# Options of `gdnctl codex-loop`, by their names without the dashes. An option on the command line wins.
# [codex-loop]
# iterations = 20
# max-wall   = "8h"
# post-check = ["gdnctl lint-log"]
# resilient  = true

# A target is what you optimise. Only `test` is required.
# [targets.my-kernel]
# root_marker = "src/kernel.c"           # a file that identifies a checkout of this target
# kernel      = ["src/kernel.c"]         # what an iteration is about (globs)
# protected   = ["gdnctl.toml", "tests/**"]  # files that iterations must not change (globs)
# log         = "docs/log.md"            # the running log
# prompt      = "prompts/kernel.md"      # the iteration prompt
# presets     = ["vectorise"]            # directives for every session
# test        = ["make", "check"]        # a command, or a table as below
# metric      = { name = "kernel/forward_ms", unit = "ms", better = "lower", from = "json:/forward/median_ms" }
# validate    = ["make"]                 # must succeed before a candidate is measured
#
# [targets.my-kernel.profile]
# argv      = ["make", "bench"]
# env       = { OMP_NUM_THREADS = "4" }
# workdir   = "."
# resources = { CPU = 4 }
# timeout_s = 600
# evidence  = { passed_min = 10, skipped_max = 2 }
)";
}

namespace {

// The word that stands for a value on the command line; nullopt: none does.
std::optional<std::string> word_of(const ConfigValue& value, bool is_flag) {
    if (const bool* truth = std::get_if<bool>(&value.value)) {
        if (!is_flag) return std::nullopt;
        return *truth ? "true" : "false";
    }
    if (is_flag) return std::nullopt;
    if (const auto* number = std::get_if<std::int64_t>(&value.value)) return std::to_string(*number);
    if (const auto* number = std::get_if<double>(&value.value)) return fmt::format("{}", *number);
    if (const std::string* text = value.as_string()) return *text;
    return std::nullopt;
}

Result<std::vector<std::string>> words_of(const OptionDef& option, const ConfigValue& value, std::string_view path) {
    const bool is_flag = option.kind == OptionDef::Kind::flag;
    std::vector<std::string> words;
    const ConfigArray* items = option.kind == OptionDef::Kind::list ? value.as_array() : nullptr;
    for (const ConfigValue& item : items != nullptr ? std::span(*items) : std::span(&value, 1)) {
        auto word = word_of(item, is_flag);
        if (!word) {
            const std::string_view wanted = is_flag                                ? "true or false"
                                            : option.kind == OptionDef::Kind::list ? "a string or a list of strings"
                                                                                   : "a string or a number";
            return fail(ErrorKind::config, fmt::format("{}: '{}' must be {}", item.origin.text(), path, wanted));
        }
        words.push_back(std::move(*word));
    }
    return words;
}

tl::unexpected<Error> unknown_key(const Args& command, std::string_view name, const std::string& key,
                                  const ConfigValue& value) {
    std::vector<std::string> known;
    for (const OptionDef& option : command.options()) known.emplace_back(option_key(option));
    const auto meant = text::nearest(key, known);
    return fail(ErrorKind::config, fmt::format("{}: unknown key '{}.{}'", value.origin.text(), name, key),
                meant ? fmt::format("did you mean `{}`?", *meant)
                      : fmt::format("`gdnctl {} --help` lists the options; a key is an option without `--`", name));
}

}  // namespace

std::string with_home(const OptionDef& option, std::string_view word, std::string_view home) {
    const bool is_kernel = option.complete == Complete::kernel || option.complete == Complete::timed_kernel;
    const bool is_path = option.complete == Complete::file || option.complete == Complete::directory;
    if (!is_path && !is_kernel) return std::string(word);
    const std::size_t colon = is_kernel ? word.find(':') : std::string_view::npos;
    const std::size_t start = colon == std::string_view::npos ? 0 : colon + 1;
    return std::string(word.substr(0, start)) + expand_home(word.substr(start), home);
}

std::string_view option_key(const OptionDef& option) {
    const std::string_view name = option.canonical();
    return name.substr(std::min(name.size(), name.find_first_not_of('-')));
}

Status assign_option_table(const Args& command, const ConfigTable& table, std::string_view name, std::string_view home,
                           const std::function<bool(const OptionDef&)>& is_given) {
    for (const auto& [key, value] : table) {
        const auto& options = command.options();
        const auto option = std::find_if(options.begin(), options.end(),
                                         [&wanted = key](const OptionDef& one) { return option_key(one) == wanted; });
        if (option == options.end()) return unknown_key(command, name, key, value);
        const std::string path = fmt::format("{}.{}", name, key);
        GDNCTL_TRY_ASSIGN(const auto words, words_of(*option, value, path));
        for (const std::string& given : words) {
            const std::string word = with_home(*option, given, home);
            command.add_given({option->canonical(), word, value.origin.text(), false});
            if (is_given(*option)) continue;
            if (const Status done = option->assign(word); !done) {
                return fail(ErrorKind::config,
                            fmt::format("{}: invalid value '{}' for '{}': {}", value.origin.text(), word, path,
                                        done.error().message),
                            done.error().hint);
            }
        }
    }
    return {};
}

}  // namespace gdnctl::cli
