#include "core/json.h"

#include <nlohmann/json.hpp>

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

std::string to_text(const Json& value, int indent) {
    return value.dump(indent, ' ', false, nlohmann::detail::error_handler_t::replace);
}

}  // namespace gdnctl
