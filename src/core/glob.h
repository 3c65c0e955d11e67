// Path patterns, as targets use them: `*` and `?` stay inside a folder, `**` crosses folders; also `[a-c]`, `[!a-c]`,
// `\x`.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gdnctl {

// Matches the whole path ('/' between folders). "a/**" matches everything below a; "**/x" also matches "x". Time:
// O(pattern * path).
bool glob_matches(std::string_view pattern, std::string_view path);

// Whether one of the patterns matches the path or a folder that contains it.
bool glob_covers(std::span<const std::string> patterns, std::string_view path);

}  // namespace gdnctl
