// Every command of gdnctl, in the order of the overview page.
#pragma once

#include "cli/command.h"

namespace gdnctl::commands {

cli::Table table();

}  // namespace gdnctl::commands
