// How commands print JSON.
#pragma once

#include "core/json.h"
#include "platform/context.h"

namespace gdnctl::commands {

// One JSON value and a newline on stdout. `indent`: of its lines; -1: all on one line.
void print_json(const Json& value, Context& context, int indent = 2);

}  // namespace gdnctl::commands
