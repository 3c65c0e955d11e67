// How errors are printed.
#pragma once

#include <string_view>

#include "core/result.h"
#include "platform/terminal.h"

namespace gdnctl::cli {

// Prints `[gdnctl] error: <context: message>` and, if there is one, `[gdnctl] hint: <hint>` to stderr. An internal
// error asks for a bug report. Returns the process's exit code.
int print_error(const Error& error, Terminal& terminal);

}  // namespace gdnctl::cli
