#include "core/json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"

#ifdef __clang__  // cmake/pch.h says why
template class nlohmann::basic_json<nlohmann::ordered_map>;
#endif

namespace gdnctl {

Result<Json> parse_json(std::string_view text, std::string_view what) {
    Json value = Json::parse(text, nullptr, false);
    if (!value.is_discarded()) return value;
    std::string reason = "not valid JSON";
    try {
        const Json again = Json::parse(text);
        (void)again;
    } catch (const nlohmann::json::parse_error& e) {
        reason = "not valid JSON at byte " + std::to_string(e.byte);
    } catch (const std::exception&) {
        reason = "not valid JSON";
    }
    return fail(ErrorKind::bad_input, std::string(what) + ": " + reason);
}

namespace {

std::string escaped(char32_t c) {
    if (c < 0x10000) return fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
    const auto rest = static_cast<std::uint32_t>(c) - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10U), 0xDC00 + (rest & 0x3FFU));
}

}  // namespace

std::string to_text(const Json& value, int indent) {
    const std::string text = value.dump(indent, ' ', false, nlohmann::detail::error_handler_t::replace);
    const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0 && c != 0x7F; });
    return ascii ? text : text::replace_unseen(text, escaped);
}

}  // namespace gdnctl

namespace gdnctl::json {

namespace {
const Json k_null;
}  // namespace

const Json* find(const Json& value, std::string_view name) {
    if (!value.is_object()) return nullptr;
    const auto found = value.find(std::string(name));
    return found == value.end() || found->is_null() ? nullptr : &*found;
}

const Json& field(const Json& value, std::string_view name) {
    const Json* found = find(value, name);
    return found != nullptr ? *found : k_null;
}

const Json* find_at(const Json& value, std::string_view pointer) {
    const Json* at = &value;
    while (at != nullptr && !pointer.empty()) {
        pointer.remove_prefix(1);
        const std::string_view step = pointer.substr(0, pointer.find('/'));
        pointer.remove_prefix(step.size());
        if (at->is_array()) {
            const auto index = text::parse_int(step);
            at = index && *index >= 0 && std::cmp_less(*index, at->size()) ? &(*at)[static_cast<std::size_t>(*index)]
                                                                           : nullptr;
        } else {
            at = find(*at, step);
        }
    }
    return at == nullptr || at->is_null() ? nullptr : at;
}

const Json& field_at(const Json& value, std::string_view pointer) {
    const Json* found = find_at(value, pointer);
    return found != nullptr ? *found : k_null;
}

namespace {

const Json* as_object(const Json* found) { return found != nullptr && found->is_object() ? found : nullptr; }
const Json* as_array(const Json* found) { return found != nullptr && found->is_array() ? found : nullptr; }

std::optional<std::string> as_text(const Json* found) {
    return found != nullptr && found->is_string() ? std::optional(found->get<std::string>()) : std::nullopt;
}

std::vector<std::string> as_texts(const Json* found) {
    std::vector<std::string> list;
    if (as_array(found) == nullptr) return list;
    for (const Json& item : *found) {
        if (item.is_string()) list.push_back(item.get<std::string>());
    }
    return list;
}

std::optional<double> as_number(const Json* found) {
    return found != nullptr && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::optional<std::int64_t> as_integer(const Json* found) {
    return found != nullptr && found->is_number_integer() ? std::optional(found->get<std::int64_t>()) : std::nullopt;
}

}  // namespace

const Json* object(const Json& value, std::string_view name) { return as_object(find(value, name)); }
const Json* object_at(const Json& value, std::string_view pointer) { return as_object(find_at(value, pointer)); }
const Json* array(const Json& value, std::string_view name) { return as_array(find(value, name)); }
const Json* array_at(const Json& value, std::string_view pointer) { return as_array(find_at(value, pointer)); }

std::optional<std::string> maybe_text(const Json& value, std::string_view name) { return as_text(find(value, name)); }
std::string text(const Json& value, std::string_view name) { return as_text(find(value, name)).value_or(""); }
std::vector<std::string> texts(const Json& value, std::string_view name) { return as_texts(find(value, name)); }
std::optional<double> number(const Json& value, std::string_view name) { return as_number(find(value, name)); }
std::optional<std::int64_t> integer(const Json& value, std::string_view name) { return as_integer(find(value, name)); }

std::optional<bool> boolean(const Json& value, std::string_view name) {
    const Json* found = find(value, name);
    return found != nullptr && found->is_boolean() ? std::optional(found->get<bool>()) : std::nullopt;
}

std::optional<WallTime> time_ms(const Json& value, std::string_view name) {
    const auto ms = integer(value, name);
    return ms ? std::optional(WallTime(std::chrono::milliseconds(*ms))) : std::nullopt;
}

std::string text_at(const Json& value, std::string_view pointer) {
    return as_text(find_at(value, pointer)).value_or("");
}
std::vector<std::string> texts_at(const Json& value, std::string_view pointer) {
    return as_texts(find_at(value, pointer));
}
std::optional<double> number_at(const Json& value, std::string_view pointer) {
    return as_number(find_at(value, pointer));
}
std::optional<std::int64_t> integer_at(const Json& value, std::string_view pointer) {
    return as_integer(find_at(value, pointer));
}

Json or_null(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }
Json or_null(const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(); }
Json or_null(const std::optional<int>& value) { return value ? Json(*value) : Json(); }
Json or_null(const std::optional<std::string>& value) { return value ? Json(*value) : Json(); }
Json or_null(const std::string& value) { return value.empty() ? Json() : Json(value); }

}  // namespace gdnctl::json
