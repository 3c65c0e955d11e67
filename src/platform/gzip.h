// Compresses files that are kept for people.
#pragma once

#include <filesystem>
#include <span>

#include "core/result.h"

namespace gdnctl {

// Replaces each PATH by PATH.gz, which is on disk before PATH is removed; overwrites an older PATH.gz. A missing PATH
// is fine if PATH.gz exists, since an earlier call may have been killed at its end. Memory use does not depend on the
// size. Error: local_io; the PATH that it names and those after it are unchanged.
Status gzip_in_place(std::span<const std::filesystem::path> paths);
inline Status gzip_in_place(const std::filesystem::path& path) { return gzip_in_place(std::span(&path, 1)); }

}  // namespace gdnctl
