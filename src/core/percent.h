// Percent-encoding of URLs (RFC 3986).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gdnctl::text {

// 0 to 15; -1: not a hexadecimal digit.
int hex_value(char c);

// RFC 3986: letters, digits, -._~ and the characters in `also` stay.
std::string percent_encode(std::string_view text, std::string_view also = {});
// nullopt: a % without two hexadecimal digits, or a NUL.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace gdnctl::text
