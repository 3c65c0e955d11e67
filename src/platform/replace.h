// Replaces a file that is rewritten often.
#pragma once

#include <filesystem>
#include <string_view>

#include <sys/types.h>

#include "core/result.h"

namespace gdnctl {

// Like atomic_replace(), without the fsync of the folder: after a crash of the machine, the complete old content may be
// back. For files that can be made again.
Status replace_whole(const std::filesystem::path& path, std::string_view bytes, mode_t mode = 0666);

}  // namespace gdnctl
