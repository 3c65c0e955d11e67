// A run of evolve as a document: its tree, its gains with intervals, what it spent. Pure.
#pragma once

#include <string>

#include "core/json.h"
#include "loop/evolve/views.h"

namespace gdnctl::loop::evolve {

std::string report_markdown(const RunView& view);
// One page that loads nothing, light or dark like the system.
std::string report_html(const RunView& view);
Json report_json(const RunView& view);

}  // namespace gdnctl::loop::evolve
