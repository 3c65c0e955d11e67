// Rewriting a file that is written often.
#pragma once

#include <filesystem>
#include <string_view>

#include <sys/types.h>

#include "core/result.h"

namespace gdnctl {

// As atomic_replace(), without the fsync of the folder: after a crash of the machine the old bytes may be back, whole.
// For what can be made again.
Status replace_whole(const std::filesystem::path& path, std::string_view bytes, mode_t mode = 0666);

}  // namespace gdnctl
