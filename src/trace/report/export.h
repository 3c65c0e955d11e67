// A trace as Chrome JSON that Perfetto's viewer loads: strict JSON, every lane properly nested. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "trace/model/trace.h"

namespace gdnctl::trace {

// Hands the text to `out` in pieces; false from `out` ends it. Events of a line that overlap without being nested are
// spread over further threads of that name. Returns the number of events. Sorts the lines of `trace`.
std::int64_t export_chrome(RawTrace& trace, const std::function<bool(std::string_view)>& out);

}  // namespace gdnctl::trace
