// Finds and reads the central directory of an archive, and checks it against the rest of the file.
#pragma once

#include <cstdint>
#include <vector>

#include "platform/zip.h"

namespace gdnctl::zip {

struct Directory {
    std::vector<ZipMember> members;
    std::uint64_t offset = 0;  // of the directory in the file; the members' data end before it
};

Result<Directory> read_directory(const ZipSource& source, const ZipLimits& limits);

}  // namespace gdnctl::zip
