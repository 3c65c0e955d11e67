// How a loop stands, as text and as JSON. Pure.
#pragma once

#include <string>

#include "commands/loop_common.h"
#include "gdnctl/core/time.h"

namespace gdnctl::commands::loop_status {

// Some lines, none wider than `columns`.
std::string status_text(const loop::LoadedRun& run, WallTime now, int columns);
// gdnctl.loop-status/1
Json status_json(const loop::LoadedRun& run);

}  // namespace gdnctl::commands::loop_status
