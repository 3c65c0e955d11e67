#include "oracle/flashinfer/fields.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"

namespace gdnctl::oracle::flashinfer {

namespace {

constexpr std::int64_t k_largest_size = std::int64_t{1} << 40U;

}  // namespace

tl::unexpected<Error> Place::bad(std::string_view detail) const {
    return fail(ErrorKind::bad_input, fmt::format("{}: {}", m_what, detail));
}

Status Place::must_be_object(const Json& value) const {
    if (value.is_object()) return {};
    return bad("is not a JSON object");
}

Result<std::string> Place::text(const Json& object, std::string_view key) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return bad(fmt::format("has no '{}'", key));
    if (!found->is_string() || found->get_ref<const std::string&>().empty()) {
        return bad(fmt::format("'{}' is not a non-empty string", key));
    }
    return found->get<std::string>();
}

Result<std::int64_t> Place::size(const Json& object, std::string_view key) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return bad(fmt::format("has no '{}'", key));
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > k_largest_size) {
        return bad(fmt::format("'{}' is not a size", key));
    }
    return found->get<std::int64_t>();
}

Result<const Json*> Place::object(const Json& object, std::string_view key) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return bad(fmt::format("has no '{}'", key));
    if (!found->is_object()) return bad(fmt::format("'{}' is not a JSON object", key));
    return found;
}

Result<const Json*> Place::array(const Json& object, std::string_view key) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return bad(fmt::format("has no '{}'", key));
    if (!found->is_array()) return bad(fmt::format("'{}' is not a JSON list", key));
    return found;
}

Result<std::string> Place::text_or(const Json& object, std::string_view key, std::string_view otherwise) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return std::string(otherwise);
    if (!found->is_string()) return bad(fmt::format("'{}' is not a string", key));
    return found->get<std::string>();
}

Result<bool> Place::flag_or(const Json& object, std::string_view key, bool otherwise) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return otherwise;
    if (!found->is_boolean()) return bad(fmt::format("'{}' is neither true nor false", key));
    return found->get<bool>();
}

Result<double> Place::number_or(const Json& object, std::string_view key, double otherwise) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return otherwise;
    if (found->is_number()) return found->get<double>();
    if (found->is_string()) {
        const std::string word = text::to_lower(found->get_ref<const std::string&>());
        if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
        if (word == "infinity" || word == "inf") return std::numeric_limits<double>::infinity();
        if (word == "-infinity" || word == "-inf") return -std::numeric_limits<double>::infinity();
    }
    return bad(fmt::format("'{}' is not a number", key));
}

Json number_json(double x) {
    if (std::isnan(x)) return "NaN";
    if (std::isinf(x)) return x > 0 ? "Infinity" : "-Infinity";
    return x;
}

}  // namespace gdnctl::oracle::flashinfer
