// Globs as in Python's fnmatch.fnmatchcase, which the official client uses for --include and --exclude.
#pragma once

#include <string_view>

namespace gdnctl::hub {

// `*` and `?` also match '/', a leading dot is not special, and `[^a]` is a set that contains '^'. A backslash counts
// as '/' in both. A pattern that ends in '/' matches everything below. Time: O(pattern * path).
bool fnmatch(std::string_view pattern, std::string_view path);

}  // namespace gdnctl::hub
