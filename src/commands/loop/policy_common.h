// Shared by the commands for performance policies.
#pragma once

#include <string>

#include "loop/gates/validation_options.h"
#include "platform/context.h"

namespace gdnctl::commands {

// The policy that codex-loop would use here: built-in values, overridden by the target's `gates`, the file and the
// options.
Result<loop::PerfPolicy> policy_in_force(const loop::PerfOptions& options, const Context& context);

}  // namespace gdnctl::commands
