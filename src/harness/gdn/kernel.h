// Kernels of gdn by their spelling, as the oracle judges them: they are asked with oracle::GdnInputs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "harness/kernel.h"
#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::harness {

// builtin:NAME, lib:PATH, src:FILE.c or cmd:COMMAND. `context` must outlive the kernel. Usage errors: an unknown kind
// or name, a file that does not exist. A source that does not compile and a library that is no kernel are faults of the
// first run, not errors here.
Result<std::unique_ptr<Kernel>> open_kernel(const std::string& spelling, const Limits& limits, const Context& context);

}  // namespace gdnctl::harness
