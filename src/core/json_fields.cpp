#include "core/json_fields.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace gdnctl::json {

const Json* find(const Json& value, std::string_view name) {
    if (!value.is_object()) return nullptr;
    const auto found = value.find(std::string(name));
    return found == value.end() || found->is_null() ? nullptr : &*found;
}

const Json* find(const Json& value, std::initializer_list<std::string_view> path) {
    const Json* at = &value;
    for (const std::string_view name : path) {
        at = find(*at, name);
        if (at == nullptr) return nullptr;
    }
    return at;
}

std::optional<std::string> maybe_text(const Json& value, std::string_view name) {
    const Json* found = find(value, name);
    return found != nullptr && found->is_string() ? std::optional(found->get<std::string>()) : std::nullopt;
}

std::string text(const Json& value, std::string_view name) { return maybe_text(value, name).value_or(std::string()); }

std::vector<std::string> texts(const Json& value, std::string_view name) {
    std::vector<std::string> list;
    const Json* found = find(value, name);
    if (found == nullptr || !found->is_array()) return list;
    for (const Json& item : *found) {
        if (item.is_string()) list.push_back(item.get<std::string>());
    }
    return list;
}

std::optional<double> number(const Json& value, std::string_view name) {
    const Json* found = find(value, name);
    return found != nullptr && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::optional<std::int64_t> integer(const Json& value, std::string_view name) {
    const Json* found = find(value, name);
    return found != nullptr && found->is_number_integer() ? std::optional(found->get<std::int64_t>()) : std::nullopt;
}

std::optional<bool> boolean(const Json& value, std::string_view name) {
    const Json* found = find(value, name);
    return found != nullptr && found->is_boolean() ? std::optional(found->get<bool>()) : std::nullopt;
}

Json or_null(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }
Json or_null(const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(); }
Json or_null(const std::optional<int>& value) { return value ? Json(*value) : Json(); }
Json or_null(const std::optional<std::string>& value) { return value ? Json(*value) : Json(); }
Json or_null(const std::string& value) { return value.empty() ? Json() : Json(value); }

}  // namespace gdnctl::json
