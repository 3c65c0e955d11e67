#include "platform/toml.h"

#include <algorithm>

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

// Where a string that begins at `at` ends: behind its quotes, or at the end of what is not closed.
std::size_t behind_string(std::string_view text, std::size_t at) {
    const char quote = text[at];
    const bool is_long = text.substr(at, 3) == std::string(3, quote);
    const std::string_view quotes = text.substr(at, is_long ? 3 : 1);
    for (std::size_t i = at + quotes.size(); i < text.size(); ++i) {
        if (text.substr(i, quotes.size()) == quotes) return i + quotes.size();
        if (text[i] == '\n' && !is_long) return i;
        if (text[i] == '\\' && quote == '"') ++i;
    }
    return text.size();
}

// The line of the first byte outside of strings and comments that is not ASCII, which TOML does not allow there and
// toml++ 3.3 takes for impossible; 0: none.
int line_of_foreign_byte(std::string_view text) {
    std::size_t i = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
    while (i < text.size()) {
        const char c = text[i];
        if (static_cast<unsigned char>(c) >= 0x80) {
            return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'));
        }
        if (c == '#') {
            i = std::min(text.find('\n', i), text.size());
        } else if (c == '"' || c == '\'') {
            i = behind_string(text, i);
        } else {
            ++i;
        }
    }
    return 0;
}

}  // namespace

Result<ConfigTable> parse_toml(std::string_view text, const ConfigOrigin& origin) {
    if (const int line = line_of_foreign_byte(text); line > 0) {
        return fail(ErrorKind::config,
                    fmt::format("{}:{}: not valid TOML: only ASCII is allowed outside of strings and comments",
                                origin.source, line),
                    "put the key or value in quotes");
    }
    try {
        return convert_table(toml::parse(text, origin.source), origin);
    } catch (const toml::parse_error& error) {
        return fail(ErrorKind::config,
                    fmt::format("{}:{}:{}: not valid TOML: {}", origin.source, error.source().begin.line,
                                error.source().begin.column, error.description()));
    }
}

}  // namespace gdnctl
