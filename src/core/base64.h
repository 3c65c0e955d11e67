// Base64 with the standard alphabet (RFC 4648 section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gdnctl {

// With padding, on one line.
std::string to_base64(std::string_view bytes);
// nullopt: another character than those of the alphabet, or a length that no text has.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace gdnctl
