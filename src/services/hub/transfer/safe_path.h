// File names that come from a server. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gdnctl::hub {

// Why `path` must not be written below the output folder ("it leads out of the folder"); nullopt: it may be. '\' counts
// as '/', so that a name which is safe here is safe on any system.
std::optional<std::string_view> why_unsafe(std::string_view path);

// A path that is both a file and, for another, a folder; or that occurs twice. nullopt: none.
std::optional<std::string> find_clash(std::span<const std::string> paths);
// Two paths that are one on a file system that ignores case.
std::optional<std::string> find_case_clash(std::span<const std::string> paths);

}  // namespace gdnctl::hub
