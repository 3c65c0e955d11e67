// Packing a file that is kept for people.
#pragma once

#include <filesystem>
#include <span>

#include "core/result.h"

namespace gdnctl {

// Each PATH becomes PATH.gz, which is on the disk before PATH goes; an older PATH.gz is replaced. A file that is not
// there, of a call that was killed at its end, is fine when PATH.gz is. Memory: independent of the size. Error:
// local_io, and the PATH that it names, with those after it, is there as it was.
Status gzip_in_place(std::span<const std::filesystem::path> paths);
inline Status gzip_in_place(const std::filesystem::path& path) { return gzip_in_place(std::span(&path, 1)); }

}  // namespace gdnctl
