// The end of a text.
#pragma once

#include <cstddef>
#include <string_view>

namespace gdnctl::text {

// The last `count` lines with their newlines; a last line without one counts.
std::string_view last_lines(std::string_view text, std::size_t count);
// The end of `text` in at most `bytes` bytes, from the start of a line where one starts there.
std::string_view end_within(std::string_view text, std::size_t bytes);

}  // namespace gdnctl::text
