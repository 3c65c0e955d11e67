// Whether the disks that a run writes to have room. What fails on a full one says nothing of anybody's work.
#pragma once

#include <filesystem>
#include <span>

#include "core/result.h"

namespace gdnctl::loop {

// Error local_io: the disk of one of these has next to nothing left. A place that is not there counts as the folder
// that it would be in.
Status check_room(std::span<const std::filesystem::path> places);

}  // namespace gdnctl::loop
