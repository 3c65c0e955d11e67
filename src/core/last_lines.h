// The end of a text.
#pragma once

#include <cstddef>
#include <string_view>

namespace gdnctl::text {

// The last `count` lines with their newlines; a last line without one counts.
std::string_view last_lines(std::string_view text, std::size_t count);

}  // namespace gdnctl::text
