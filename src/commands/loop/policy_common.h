// What the commands on performance policies share.
#pragma once

#include <string>

#include "loop/gates/validation_options.h"
#include "platform/context.h"

namespace gdnctl::commands {

// The policy that codex-loop would use here: built in, the target's `gates`, the file, the options.
Result<loop::PerfPolicy> policy_in_force(const loop::PerfOptions& options, const Context& context);

}  // namespace gdnctl::commands
