// The state of a loop, as text and as JSON. Pure.
#pragma once

#include <string>

#include "commands/loop/loop_common.h"
#include "core/time.h"

namespace gdnctl::commands::loop_status {

// Lines no wider than `columns`. `measured`: for the same run; nullptr: nothing was measured.
std::string status_text(const loop::LoadedRun& run, const loop::MeasuredRun* measured, WallTime now, int columns);
// gdnctl.loop-status/1
Json status_json(const loop::LoadedRun& run, const loop::MeasuredRun* measured);

}  // namespace gdnctl::commands::loop_status
