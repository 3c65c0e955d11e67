// Runs a child that takes over our terminal: a remote shell, an editor.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"

namespace gdnctl {

// Runs the program with our standard streams, in our process group, and returns its exit code (128 + N for a signal).
// Ctrl-C is the child's business meanwhile; a requested stop hangs it up. Error: local_io (it cannot be started).
Result<int> run_in_terminal(const std::vector<std::string>& argv, const std::stop_token& stop);

}  // namespace gdnctl
