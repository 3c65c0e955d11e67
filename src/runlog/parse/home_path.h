// Paths that reveal a user's name.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace gdnctl::runlog {

// What `~` stands for: "/home/x", "/Users/x", "C:\Users\x", also after "file://"; without a trailing slash.
struct HomePath {
    std::size_t offset, length;
};

// Every home directory in a text, in order; only where a path may begin.
std::vector<HomePath> find_home_paths(std::string_view text);

}  // namespace gdnctl::runlog
