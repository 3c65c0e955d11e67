#include "core/json.h"

#include <algorithm>

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
