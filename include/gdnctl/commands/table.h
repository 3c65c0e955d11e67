// Every command of gdnctl, in the order of the overview page.
#pragma once

#include <span>

#include "gdnctl/cli/command.h"

namespace gdnctl::commands {

std::span<const cli::Command> table();

}  // namespace gdnctl::commands
