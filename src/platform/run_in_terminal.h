// A child that has our terminal to itself: a remote shell, an editor.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace gdnctl {

// Runs the program with our standard streams, in our process group, and returns its exit code (128 + N for a signal).
// Ctrl-C is the child's business meanwhile. Error: local_io (it cannot be started).
Result<int> run_in_terminal(const std::vector<std::string>& argv);

}  // namespace gdnctl
