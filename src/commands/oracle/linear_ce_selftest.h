// gdnctl oracle selftest linear-ce
#pragma once

#include "commands/oracle/linear_ce.h"

namespace gdnctl::commands::linear_ce {

Result<ExitCode> selftest(int threads, Context& context);

}  // namespace gdnctl::commands::linear_ce
