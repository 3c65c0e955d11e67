// The target that commands use.
#pragma once

#include "platform/context.h"
#include "target/target.h"

namespace gdnctl::commands {

// The target in effect: select_target(), with its `gates` checked. Error: config.
Result<Target> target_in_use(const Context& context);

}  // namespace gdnctl::commands
