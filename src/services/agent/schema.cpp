// The subset of JSON Schema in which codex's output schemas are written.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "services/agent/codex.h"
#include "services/agent/json_fields.h"

namespace gdnctl {

namespace {

constexpr int k_deepest = 64;

bool has_type(const Json& value, std::string_view type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "integer") return value.is_number_integer();
    return type != "number" || value.is_number();
}

bool has_any_type(const Json& value, const Json& types) {
    if (types.is_string()) return has_type(value, types.get<std::string>());
    if (!types.is_array()) return true;
    return std::any_of(types.begin(), types.end(),
                       [&](const Json& type) { return type.is_string() && has_type(value, type.get<std::string>()); });
}

Status broken(const std::string& at, std::string_view what) {
    return fail(ErrorKind::bad_input, fmt::format("the final message violates its schema at {}: {}", at, what));
}

Status check(const Json& value, const Json& schema, const std::string& at, int depth);

Status check_object(const Json& value, const Json& schema, const std::string& at, int depth) {
    const Json& properties = json::field(schema, "properties");
    if (const Json& required = json::field(schema, "required"); required.is_array()) {
        for (const Json& name : required) {
            if (name.is_string() && !value.contains(name.get<std::string>())) {
                return broken(at, fmt::format("'{}' is missing", name.get<std::string>()));
            }
        }
    }
    for (const auto& [name, member] : value.items()) {
        const std::string inner = fmt::format("{}/{}", at == "/" ? "" : at, name);
        if (properties.is_object() && properties.contains(name)) {
            GDNCTL_TRY(check(member, properties.at(name), inner, depth + 1));
        } else if (json::field(schema, "additionalProperties").is_boolean() && !schema.at("additionalProperties")) {
            return broken(inner, "it is not in the schema");
        }
    }
    return {};
}

Status check(const Json& value, const Json& schema, const std::string& at, int depth) {
    if (depth > k_deepest) return broken(at, "nested too deeply");
    const Json& types = json::field(schema, "type");
    if (!has_any_type(value, types)) return broken(at, fmt::format("it is not of type {}", to_text(types)));
    if (const Json& allowed = json::field(schema, "enum"); allowed.is_array()) {
        if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
            return broken(at, fmt::format("it is not one of {}", to_text(allowed)));
        }
    }
    if (value.is_object()) return check_object(value, schema, at, depth);
    const Json& items = json::field(schema, "items");
    if (!value.is_array() || !items.is_object()) return {};
    for (std::size_t i = 0; i < value.size(); ++i) {
        GDNCTL_TRY(check(value[i], items, fmt::format("{}/{}", at == "/" ? "" : at, i), depth + 1));
    }
    return {};
}

}  // namespace

Status check_against_schema(std::string_view message, std::string_view schema) {
    GDNCTL_TRY_ASSIGN(const Json rules, parse_json(schema, "the output schema"));
    GDNCTL_TRY_ASSIGN(const Json value, parse_json(message, "the final message"));
    return check(value, rules, "/", 0);
}

}  // namespace gdnctl
