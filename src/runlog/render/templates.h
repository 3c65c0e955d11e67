// What a new log, and a new entry written by hand, start from.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

// Title, purpose and sections of a new log, entries excluded.
std::string log_head(Template kind);

// The template of an entry with what `record` knows filled in; the rest is left empty.
std::string entry_skeleton(const Json& record);

}  // namespace gdnctl::runlog
