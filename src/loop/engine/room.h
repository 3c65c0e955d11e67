// Whether the disks that a run writes to have space left. A failure on a full disk says nothing about the candidate.
#pragma once

#include <filesystem>
#include <span>

#include "core/result.h"

namespace gdnctl::loop {

// Error local_io: one of these disks is almost full. For a path that does not exist, the folder that would contain it
// counts.
Status check_room(std::span<const std::filesystem::path> places);

}  // namespace gdnctl::loop
