// Templates for a new log and for a new hand-written entry.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

// Title, purpose and sections of a new log, without entries.
std::string log_head(Template kind);

// The template of an entry, with the known values of `record` filled in.
std::string entry_skeleton(const Json& record);

}  // namespace gdnctl::runlog
