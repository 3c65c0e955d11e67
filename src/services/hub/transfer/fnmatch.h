// Globs as Python's fnmatch.fnmatchcase reads them, which is how the official client reads --include and --exclude.
#pragma once

#include <string_view>

namespace gdnctl::hub {

// `*` and `?` match '/' too, a leading dot is nothing special, `[^a]` is a set with '^' in it. A backslash is a '/' in
// both; a pattern that ends in '/' means all below. Time: pattern times path.
bool fnmatch(std::string_view pattern, std::string_view path);

}  // namespace gdnctl::hub
