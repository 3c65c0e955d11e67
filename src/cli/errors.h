// How every error of every command looks.
#pragma once

#include <string_view>

#include "core/result.h"
#include "platform/terminal.h"

namespace gdnctl::cli {

// `[gdnctl] error: <context: message>` and, when there is one, `[gdnctl] hint: <hint>` on stderr. An internal error
// asks for a report. Returns the process's exit code.
int print_error(const Error& error, Terminal& terminal);

}  // namespace gdnctl::cli
