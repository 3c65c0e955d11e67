// Configuration as a plain tree of values, each with its origin. platform/toml.cpp fills it; Context carries it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/result.h"

namespace gdnctl {

struct ConfigOrigin {
    enum class Kind { builtin, user_file, project_file, environment, flag };
    Kind kind = Kind::builtin;
    std::string source;  // file path, variable name or option name
    int line = 0;        // 1-based; 0: no line
    // "built-in", "./gdnctl.toml:12", "environment GDNCTL_CLUSTER", "option --cluster".
    std::string text() const;
};

struct ConfigValue;
using ConfigTable = std::map<std::string, ConfigValue, std::less<>>;
using ConfigArray = std::vector<ConfigValue>;

struct ConfigValue {
    std::variant<bool, std::int64_t, double, std::string, ConfigArray, ConfigTable> value;
    ConfigOrigin origin;

    const std::string* as_string() const { return std::get_if<std::string>(&value); }
    const ConfigTable* as_table() const { return std::get_if<ConfigTable>(&value); }
    const ConfigArray* as_array() const { return std::get_if<ConfigArray>(&value); }
};

class Config {
public:
    // The value at a dotted path ("targets.cpu-gdn.log"), or nullptr. Keys hold no dots.
    const ConfigValue* find(std::string_view dotted_path) const;

    // Typed access. nullopt: the key is absent. A value of another type is a config error that names its origin.
    Result<std::optional<std::string>> string(std::string_view dotted_path) const;
    Result<std::optional<std::int64_t>> integer(std::string_view dotted_path) const;
    Result<std::optional<bool>> boolean(std::string_view dotted_path) const;

    // Merges `layer` into this table: tables merge, every other value is replaced.
    void overlay(const ConfigTable& layer);

    const ConfigTable& root() const { return m_root; }

private:
    ConfigTable m_root;
};

}  // namespace gdnctl
