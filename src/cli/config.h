// Configuration: flags > environment > nearest gdnctl.toml (this folder or above) > the user's config.toml > built-in
// defaults.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "core/config.h"
#include "core/result.h"
#include "platform/env.h"

namespace gdnctl::cli {

struct ConfigRequest {
    std::filesystem::path cwd;          // absolute
    std::optional<std::string> file;    // --config: replaces the project file
    std::optional<std::string> target;  // --target
};

struct LoadedConfig {
    Config config;
    std::vector<std::filesystem::path> files;  // the files that were read, lowest precedence first
    std::vector<std::string> warnings;         // unknown keys, each with file, line and a suggestion
};

// Errors: usage (the file of --config does not exist), config (a file that is not TOML or holds a value of the wrong
// type; with file and line), local_io (a file cannot be read).
Result<LoadedConfig> load_config(const Env& env, const ConfigRequest& request);

// gdnctl.toml in `from` or the nearest folder above that has one.
std::optional<std::filesystem::path> find_project_config(const std::filesystem::path& from);

// $XDG_CONFIG_HOME/gdnctl/config.toml, or below ~/.config; empty without a home directory.
std::filesystem::path user_config_path(const Env& env);

// A key that a configuration file or a variable may set.
struct ConfigKey {
    std::string_view name;
    std::string_view variable;  // empty: none
    std::string_view type;      // "string", "table"
    std::string_view help;
    bool holds_values = false;  // of a table: values, not further tables
};
const std::vector<ConfigKey>& config_keys();

// What `config init` writes: every key, explained and commented out.
std::string config_template();

// The options of a command in the configuration: a table whose keys are their names without the dashes.

// Assigns the table's values to the options that `is_given` does not claim. `home`: the folder that "~" means. Errors:
// config, with file and line: a key that names no option (with a suggestion), a value that the option does not take.
Status assign_option_table(const Args& command, const ConfigTable& table, std::string_view name, std::string_view home,
                           const std::function<bool(const OptionDef&)>& is_given);

// The word to assign to the option: in a path, or after the prefix of a kernel, the folder `home` takes the place of a
// leading "~", which shells leave alone in --option=~/x and src:~/x.
std::string with_home(const OptionDef& option, std::string_view word, std::string_view home);

// The option's name as a key: "post-check" for --post-check.
std::string_view option_key(const OptionDef& option);

}  // namespace gdnctl::cli
