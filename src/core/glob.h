// Patterns for paths, as targets name them: `*` and `?` stay inside a folder, `**` does not, `[a-c]`, `[!a-c]`, `\x`.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gdnctl {

// The whole path ('/' between folders). "a/**" has everything below a; "**/x" also has "x". Time: pattern times path.
bool glob_matches(std::string_view pattern, std::string_view path);

// Whether one of the patterns names the path or a folder that it is in.
bool glob_covers(std::span<const std::string> patterns, std::string_view path);

}  // namespace gdnctl
