#include "platform/toml.h"

#include <fmt/format.h>

// toml++ 3.3 asserts where it is about to report an error ("[ }"), so its assertions are off; not by NDEBUG, which
// would let the compiler assume what they say.
#undef NDEBUG
#define TOML_ASSERT(expr) static_assert(true)
#define TOML_EXCEPTIONS 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace gdnctl {

namespace {

ConfigOrigin origin_of(const toml::node& node, const ConfigOrigin& file) {
    ConfigOrigin origin = file;
    origin.line = static_cast<int>(node.source().begin.line);
    return origin;
}

Result<ConfigTable> convert_table(const toml::table& table, const ConfigOrigin& file);

Result<ConfigValue> convert(const toml::node& node, const ConfigOrigin& file) {
    ConfigValue result;
    result.origin = origin_of(node, file);
    switch (node.type()) {
        case toml::node_type::string: result.value = node.as_string()->get(); break;
        case toml::node_type::integer: result.value = node.as_integer()->get(); break;
        case toml::node_type::floating_point: result.value = node.as_floating_point()->get(); break;
        case toml::node_type::boolean: result.value = node.as_boolean()->get(); break;
        case toml::node_type::array: {
            ConfigArray items;
            for (const toml::node& item : *node.as_array()) {
                GDNCTL_TRY_ASSIGN(auto converted, convert(item, file));
                items.push_back(std::move(converted));
            }
            result.value = std::move(items);
            break;
        }
        case toml::node_type::table: {
            GDNCTL_TRY_ASSIGN(result.value, convert_table(*node.as_table(), file));
            break;
        }
        default:
            return fail(ErrorKind::config, result.origin.text() + ": dates and times are not supported here",
                        "write it as a string, in quotes");
    }
    return result;
}

Result<ConfigTable> convert_table(const toml::table& table, const ConfigOrigin& file) {
    ConfigTable result;
    for (const auto& [key, node] : table) {
        GDNCTL_TRY_ASSIGN(auto converted, convert(node, file));
        // A table that is only implied by [a.b] has no position of its own; use the key's.
        if (converted.origin.line == 0) converted.origin.line = static_cast<int>(key.source().begin.line);
        result.insert_or_assign(std::string(key.str()), std::move(converted));
    }
    return result;
}

}  // namespace

Result<ConfigTable> parse_toml(std::string_view text, const ConfigOrigin& origin) {
    try {
        return convert_table(toml::parse(text, origin.source), origin);
    } catch (const toml::parse_error& error) {
        return fail(ErrorKind::config,
                    fmt::format("{}:{}:{}: not valid TOML: {}", origin.source, error.source().begin.line,
                                error.source().begin.column, error.description()));
    }
}

}  // namespace gdnctl
