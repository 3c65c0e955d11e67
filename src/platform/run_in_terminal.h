// Runs a child that takes over our terminal: a remote shell, an editor.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace gdnctl {

// Runs the program with our standard streams, in our process group, and returns its exit code (128 + N for a signal).
// Meanwhile only the child reacts to Ctrl-C. Error: local_io (it cannot be started).
Result<int> run_in_terminal(const std::vector<std::string>& argv);

}  // namespace gdnctl
