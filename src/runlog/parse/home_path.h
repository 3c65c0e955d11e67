// Paths that tell who worked where.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace gdnctl::runlog {

// What `~` stands for: "/home/x", "/Users/x", "C:\Users\x", with a "file://" in front; without the slash behind it.
struct HomePath {
    std::size_t offset, length;
};

// Every home directory of a text where a path may begin, in order.
std::vector<HomePath> find_home_paths(std::string_view text);

}  // namespace gdnctl::runlog
