// Checks file names that come from a server. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gdnctl::hub {

// Why `path` must not be written below the output folder ("it leads out of the folder"); nullopt: it may. '\' counts as
// '/', so that a name which is safe here is safe on any system.
std::optional<std::string_view> why_unsafe(std::string_view path);

// A path that occurs twice, or that is a file and also the folder of another path. nullopt: none.
std::optional<std::string> find_clash(std::span<const std::string> paths);
// Two paths that are the same on a file system that ignores case.
std::optional<std::string> find_case_clash(std::span<const std::string> paths);

}  // namespace gdnctl::hub
